"""The metrics of Experiments."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from convoy_crds.experiment_status import RUN_ENDED, ExperimentPhase

BLOCK_STATES = ("succeeded", "failed")


class ExperimentMetrics:
    """The metrics of all Experiments."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.experiments = Gauge("convoy_experiments", "Experiments by phase.", ["phase"], registry=registry)
        self.blocks = Gauge(
            "convoy_experiment_blocks",
            "Ended blocks of Experiments, by state. A block with a failed run has failed.",
            ["state"],
            registry=registry,
        )
        self.runs = Gauge(
            "convoy_experiment_runs", "Runs of Experiments that have not ended.", registry=registry
        )
        self.stale_results = Gauge(
            "convoy_experiment_stale_results",
            "Results of replaced attempts that Experiments have refused.",
            registry=registry,
        )
        self.show(())

    def show(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges from the statuses of all Experiments."""
        phases: Counts[str] = Counts()
        totals: Counts[str] = Counts()
        for status in statuses:
            phases[status.get("phase") or ExperimentPhase.PENDING] += 1
            blocks, failed = len(status.get("blocks") or ()), status.get("failedBlocks", 0)
            active = sum(one.get("state") not in RUN_ENDED for one in status.get("runs") or ())
            totals.update(
                succeeded=blocks - failed, failed=failed, runs=active, stale=status.get("staleResults", 0)
            )
        for phase in ExperimentPhase:
            self.experiments.labels(phase.value).set(phases[phase])
        for state in BLOCK_STATES:
            self.blocks.labels(state).set(totals[state])
        self.runs.set(totals["runs"])
        self.stale_results.set(totals["stale"])
