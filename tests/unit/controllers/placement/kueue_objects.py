"""Workloads as Kueue stores them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from convoy_controllers.cached import CachedObject

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BEFORE = "2026-01-01T00:00:00Z"


def condition(
    kind: str, status: str = "True", reason: str = "Some", message: str = "words"
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": BEFORE,
    }


def workload(
    *conditions: dict[str, Any], name: str = "w", queue: str = "team", pods: int = 2, **status: Any
) -> CachedObject:
    """Return a Workload with one podSet `worker`."""
    raw = {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 3},
        "spec": {"queueName": queue, "podSets": [{"name": "worker", "count": pods}]},
        "status": {"conditions": list(conditions), **status},
    }
    return CachedObject("default", name, f"uid-{name}", 7, raw)


def admitted(pods: int = 2, *more: dict[str, Any], name: str = "w", **assignment: Any) -> CachedObject:
    """Return an admitted Workload."""
    assignments = [{"name": "worker", "count": pods, "flavors": {"cpu": "plain"}, **assignment}]
    return workload(
        condition("QuotaReserved"),
        condition("Admitted"),
        *more,
        name=name,
        pods=pods,
        admission={"clusterQueue": "cq", "podSetAssignments": assignments},
    )


def evicted(reason: str, *more: dict[str, Any], pods: int = 2, name: str = "w") -> CachedObject:
    """Return a Workload that Kueue evicts."""
    return admitted(pods, condition("Evicted", reason=reason, message="make room"), *more, name=name)
