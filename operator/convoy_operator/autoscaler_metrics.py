"""The metrics of the autoscaler of ServingJobs."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from convoy_controllers.autoscale.decision import CHANGE_REASONS


class AutoscalerMetrics:
    """The metrics of all roles whose `scaling` has mode Convoy."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.desired = Gauge(
            "convoy_autoscaler_desired_replicas",
            "Desired replicas of all roles that Convoy's autoscaler scales.",
            registry=registry,
        )
        self.current = Gauge(
            "convoy_autoscaler_current_replicas",
            "Existing replicas of all roles that Convoy's autoscaler scales.",
            registry=registry,
        )
        self.decisions = Counter(
            "convoy_autoscaler_decisions",
            "Changes of the number of replicas of a role by Convoy's autoscaler, by reason.",
            ["reason"],
            registry=registry,
        )
        for reason in CHANGE_REASONS:
            # A series must exist before its first count: otherwise rate() does not see that count.
            self.decisions.labels(reason)

    def show(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges from the statuses of all ServingJobs."""
        totals: Counts[str] = Counts()
        for status in statuses:
            scaled = {one["role"] for one in status.get("scaling") or ()}
            for role in status.get("roles") or ():
                if role["name"] in scaled:
                    totals.update(desired=role.get("desired", 0), current=role.get("replicas", 0))
        self.desired.set(totals["desired"])
        self.current.set(totals["current"])
