"""Converts the results of a sweep to the reports that the agent sends to the hub."""

from __future__ import annotations

from convoy_agents.guard.sweep.finding import Outcome
from convoy_agents.guard.sweep.provenance import Provenance
from convoy_agents.guard.sweep.runner import Result
from convoy_agents.wire import hub_pb2

TO_WIRE = {
    Outcome.MEASURED: hub_pb2.SweepMetric.MEASURED,
    Outcome.NOT_AVAILABLE: hub_pb2.SweepMetric.NOT_AVAILABLE,
    Outcome.FAILED: hub_pb2.SweepMetric.FAILED,
    Outcome.TIMED_OUT: hub_pb2.SweepMetric.TIMED_OUT,
    Outcome.HUNG: hub_pb2.SweepMetric.HUNG,
    Outcome.CRASHED: hub_pb2.SweepMetric.CRASHED,
    Outcome.OUT_OF_MEMORY: hub_pb2.SweepMetric.OUT_OF_MEMORY,
    Outcome.GARBAGE: hub_pb2.SweepMetric.GARBAGE,
    Outcome.NO_OUTPUT: hub_pb2.SweepMetric.NO_OUTPUT,
}


def started(name: str, node: str, provenance: Provenance) -> hub_pb2.SweepReport:
    """Return the first report of a sweep, without results."""
    return hub_pb2.SweepReport(
        name=name,
        node=node,
        provenance=hub_pb2.SweepProvenance(
            agent=provenance.agent,
            kernel=provenance.kernel,
            driver=provenance.driver,
            boot_id=provenance.boot_id,
        ),
    )


def refused(name: str, node: str, why: str) -> hub_pb2.SweepReport:
    """Return the report of a sweep that the agent refused to start. `why` is the reason."""
    return hub_pb2.SweepReport(name=name, node=node, state=hub_pb2.SweepReport.REFUSED, message=why)


def add(report: hub_pb2.SweepReport, result: Result, partner: str = "") -> None:
    """Add a probe's result to the report. Facts and their digest go into the report's inventory, and other
    digests into the probe's metric.
    """
    found = result.finding
    metric = report.metrics.add(
        metric=result.probe.name,
        unit=result.probe.unit,
        higher_is_better=result.probe.higher_is_better,
        samples=found.samples,
        outcome=TO_WIRE[found.outcome],
        message=found.message,
        milliseconds=int(result.seconds * 1000),
        partner=partner,
    )
    if result.accelerator is not None:
        metric.accelerator = result.accelerator
    if found.facts:
        report.inventory.update(found.facts)
        report.inventory_digest = next(iter(found.digests), "")
    else:
        metric.digests.extend(found.digests)
