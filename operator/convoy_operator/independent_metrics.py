"""The metrics of Independent roles."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from convoy_crds.trainingjob_status import TERMINAL

STATES = ("desired", "running", "completed", "given_up")
CAUSES = {"failure": "restarts", "preemption": "preemptions"}
"""Field of the status that counts the restarts of each cause."""


class IndependentMetrics:
    """The metrics of all pods of Independent roles."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pods = Gauge(
            "convoy_independent_pods",
            "Pods of Independent roles of TrainingJobs that have not ended, by state.",
            ["state"],
            registry=registry,
        )
        self.restarts = Counter(
            "convoy_independent_restarts",
            "Restarts of pods of Independent roles, by cause. A preemption is the loss of a pod or its node.",
            ["cause"],
            registry=registry,
        )
        for cause in CAUSES:
            self.restarts.labels(cause)
        self.show(())

    def show(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges from the statuses of all TrainingJobs."""
        totals: Counts[str] = Counts()
        for status in statuses:
            if status.get("phase") in TERMINAL:
                continue
            for role, counts in _roles(status):
                totals.update(
                    desired=role.get("desired", 0),
                    running=role.get("ready", 0),
                    completed=counts.get("completed", 0),
                    given_up=counts.get("givenUp", 0),
                )
        for state in STATES:
            self.pods.labels(state).set(totals[state])

    def count(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count the restarts between two statuses of one job."""
        known = {role["name"]: counts for role, counts in _roles(before)}
        for role, counts in _roles(after):
            for cause, field in CAUSES.items():
                gain = counts.get(field, 0) - known.get(role["name"], {}).get(field, 0)
                self.restarts.labels(cause).inc(max(0, gain))


def _roles(status: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the status of each Independent role, and its counts."""
    for role in status.get("roles") or ():
        if (counts := role.get("independent")) is not None:
            yield role, counts
