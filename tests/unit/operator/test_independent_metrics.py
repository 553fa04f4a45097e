"""Tests of the metrics of Independent roles."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from convoy_operator.independent_metrics import IndependentMetrics


def status(phase: str = "Running", ready: int = 3, **counts: int) -> dict[str, Any]:
    zero = {"completed": 0, "givenUp": 0, "restarts": 0, "preemptions": 0}
    rollout = {"name": "rollout", "desired": 8, "ready": ready, "independent": {**zero, **counts}}
    return {"phase": phase, "roles": [{"name": "worker", "desired": 2, "ready": 2}, rollout]}


def test_pods_and_restarts_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = IndependentMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    metrics.show([status(givenUp=1, completed=2), status(ready=1), status("Succeeded"), {}])
    states = ("desired", "running", "completed", "given_up")
    assert [value("convoy_independent_pods", state=state) for state in states] == [16, 4, 2, 1]
    metrics.count(status(), status(restarts=2, preemptions=5))
    metrics.count(status(restarts=2), status())
    metrics.count({}, status(preemptions=1))
    assert value("convoy_independent_restarts_total", cause="failure") == 2
    assert value("convoy_independent_restarts_total", cause="preemption") == 6
