"""The content of the page of one cluster-scoped object: its facts, a table of its parts, and its
conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import State
from convoy_crds.parameters import parameters
from convoy_operator.dashboard.core import conditions, nodes
from convoy_operator.dashboard.core.cluster_objects import place
from convoy_operator.dashboard.core.formatting import ago, clock, cluster_link, figure, node_link
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.node import VERDICTS, findings
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

_STATES = {state.lower(): state for state in State}


@dataclass(frozen=True, slots=True)
class Part:
    """A table of an object's page."""

    key: str
    title: str
    empty: str
    columns: tuple[Column, ...]
    rows: Callable[[Any, datetime], list[Row]]


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """The content of the pages of one kind."""

    facts: Callable[[Any, datetime], list[Fact]]
    parts: tuple[Part, ...] = ()


def condition_rows(found: Any, now: datetime) -> list[Row]:
    """Return the object's conditions as table rows. HealthSweeps and HardwareClasses have none."""
    there: list[Condition] = getattr(found.status, "conditions", [])
    return conditions.rows(there, now, conditions.good_if_true)


def _engine_facts(found: Engine, now: datetime) -> list[Fact]:
    spec = found.spec
    return [
        Fact("For", f"{spec.role_kind}Job"),
        Fact("Image", spec.image),
        Fact("Command", " ".join(spec.command)),
        Fact("Created", clock(found.metadata.creation_timestamp)),
    ]


def _parameter_rows(found: Engine, now: datetime) -> list[Row]:
    return [
        Row(one[0], tuple(Cell(text or "-") for text in one)) for one in parameters(found.spec.params_schema)
    ]


def _metric_rows(found: Engine, now: datetime) -> list[Row]:
    return [
        Row(one.name, (Cell(one.name), Cell(one.unit or "-"), Cell(one.help or "-")))
        for one in found.spec.metrics
    ]


def _store_facts(found: CheckpointStore, now: datetime) -> list[Fact]:
    status, s3 = found.status, found.spec.s3
    able = status.capabilities
    facts = [
        Fact("Place", place(found)),
        Fact("Namespaces", ", ".join(found.spec.allowed_namespaces).replace("*", "all")),
        Fact(
            "Last probe",
            f"{ago(status.probed_at, now)}, by {status.probed_by}" if status.probed_at else "none",
        ),
    ]
    if s3 is not None:
        facts.insert(1, Fact("Endpoint", s3.endpoint or "Amazon S3"))
    if able is not None:
        atomic = "yes" if able.conditional_writes else "no: jobs commit no checkpoint"
        facts.append(Fact("Conditional writes", atomic, Tone.PLAIN if able.conditional_writes else Tone.BAD))
        facts.append(
            Fact("Checksums at writes", "yes" if able.checksums else "no: checked when data are read")
        )
    return facts


def _policy_facts(found: GuardPolicy, now: datetime) -> list[Fact]:
    spec, breaker = found.spec, found.status.breaker
    closed = breaker.state is BreakerState.CLOSED
    since = f", since {clock(breaker.since)}" if breaker.since else ""
    budgets = spec.budgets
    return [
        Fact("Mode", spec.mode),
        Fact("Priority", str(spec.priority)),
        Fact("New nodes", spec.on_join),
        Fact("Breaker", f"{breaker.state}{since}", Tone.PLAIN if closed else Tone.BAD),
        Fact("Slow means", f"{spec.detection.least_slowdown_percent} % slower for {spec.detection.lasting}"),
        Fact("Sweeps", f"deadline {spec.sweeps.deadline}" if spec.sweeps is not None else "off"),
        Fact(
            "Drained or repaired at once", f"{budgets.pool_percent} % of the nodes, {budgets.per_rack} a rack"
        ),
        Fact("Quarantined at most", f"{budgets.quarantined_percent} % of the nodes"),
    ]


def _state_rows(found: GuardPolicy, now: datetime) -> list[Row]:
    return [
        Row(
            name,
            (
                Cell(_STATES.get(name, name), nodes.TONES[_STATES[name]] if name in _STATES else Tone.PLAIN),
                Cell(str(number), order=float(number)),
            ),
        )
        for name, number in sorted(found.status.states.items(), key=lambda pair: (-pair[1], pair[0]))
        if number
    ]


def _sweep_facts(found: HealthSweep, now: datetime) -> list[Fact]:
    status, spec = found.status, found.spec
    facts = [
        Fact("Nodes done", f"{status.done} of {status.desired}"),
        Fact("Nodes failed", str(status.failed), Tone.BAD if status.failed else Tone.PLAIN),
        Fact("Tiers", ", ".join(spec.tiers)),
        Fact("Started", clock(status.start_time)),
        Fact("Completed", clock(status.completion_time)),
    ]
    return facts if status.completion_time else [*facts, Fact("Deadline", f"{spec.deadline} after the start")]


def _verdict_rows(found: HealthSweep, now: datetime) -> list[Row]:
    return [
        Row(
            one.node,
            (
                Cell(one.node, href=node_link(one.node)),
                Cell(one.verdict, VERDICTS[one.verdict]) if one.verdict else Cell("running", Tone.BUSY),
                Cell(one.tier),
                Cell(ago(one.at, now), order=-one.at.timestamp() if one.at else None),
                _class_cell(one.hardware_class),
                Cell(findings(one)),
            ),
        )
        for one in found.status.nodes
    ]


def _class_cell(name: str) -> Cell:
    return Cell(name, href=cluster_link("hardwareclasses", name)) if name else Cell("-")


def _pair_rows(found: HealthSweep, now: datetime) -> list[Row]:
    return [
        Row(
            f"{one.node}/{one.partner}",
            (
                Cell(one.node, href=node_link(one.node)),
                Cell(one.partner, href=node_link(one.partner)),
                Cell(f"{figure(one.bandwidth)} MB/s", order=one.bandwidth),
            ),
        )
        for one in found.status.pairs
    ]


def _class_facts(found: HardwareClass, now: datetime) -> list[Fact]:
    status = found.status
    drifted = ", ".join(status.drifted)
    return [
        Fact("Nodes", str(status.nodes)),
        Fact("Metrics with reference", f"{status.referenced} of {len(status.metrics)}"),
        Fact("Drifted", drifted or "none", Tone.WARN if drifted else Tone.PLAIN),
        Fact("Created", clock(found.metadata.creation_timestamp)),
    ]


def _measured_rows(found: HardwareClass, now: datetime) -> list[Row]:
    return [
        Row(
            one.name,
            (
                Cell(one.name),
                Cell(
                    f"{figure(one.median)} {one.unit}".strip() if one.median is not None else "-",
                    order=one.median,
                ),
                Cell("higher" if one.higher_is_better else "lower"),
                Cell(f"{one.drift:+.1%}" if one.drift is not None else "-", order=one.drift),
                Cell(str(len(one.reference)), order=float(len(one.reference))),
                Cell(str(len(one.recent)), order=float(len(one.recent))),
            ),
        )
        for one in found.status.metrics
    ]


def _inventory_rows(found: HardwareClass, now: datetime) -> list[Row]:
    return [Row(name, (Cell(name), Cell(text or "-"))) for name, text in sorted(found.status.facts.items())]


PAGES = {
    "checkpointstores": ObjectPage(_store_facts),
    "guardpolicies": ObjectPage(
        _policy_facts,
        (
            Part(
                "states",
                "Nodes by state",
                "The policy covers no node.",
                (Column("State", badge=True), Column("Nodes", number=True)),
                _state_rows,
            ),
        ),
    ),
    "healthsweeps": ObjectPage(
        _sweep_facts,
        (
            Part(
                "verdicts",
                "Nodes",
                "No node is in the sweep yet.",
                (
                    Column("Node", link=True),
                    Column("Verdict", badge=True),
                    Column("Tier"),
                    Column("Time", number=True),
                    Column("Hardware class", link=True),
                    Column("Reason", wide=True),
                ),
                _verdict_rows,
            ),
            Part(
                "pairs",
                "Bandwidth between nodes",
                "Only tier L2 measures pairs of nodes.",
                (Column("Node", link=True), Column("Partner", link=True), Column("Bandwidth", number=True)),
                _pair_rows,
            ),
        ),
    ),
    "hardwareclasses": ObjectPage(
        _class_facts,
        (
            Part(
                "metrics",
                "Metrics",
                "No sweep has measured a node of this class: tier L0 reads inventories only.",
                (
                    Column("Metric"),
                    Column("Reference median", number=True),
                    Column("Better"),
                    Column("Drift", number=True),
                    Column("Reference rows", number=True),
                    Column("Latest rows", number=True),
                ),
                _measured_rows,
            ),
            Part(
                "inventory",
                "Inventory that the nodes share",
                "No inventory is recorded.",
                (Column("Fact"), Column("Value", wide=True)),
                _inventory_rows,
            ),
        ),
    ),
    "engines": ObjectPage(
        _engine_facts,
        (
            Part(
                "parameters",
                "Parameters",
                "The Engine has no parameters.",
                (Column("Parameter"), Column("Type"), Column("Default"), Column("Meaning", wide=True)),
                _parameter_rows,
            ),
            Part(
                "metrics",
                "Metrics",
                "The Engine reports no metrics except step, loss and samples.",
                (Column("Metric"), Column("Unit"), Column("Meaning", wide=True)),
                _metric_rows,
            ),
        ),
    ),
}
"""Content of the pages, by the plural of the kind."""
