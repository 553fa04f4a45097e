"""Tests of the metrics of ServingJobs: gauges from their statuses, counts of rollouts and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import CachedObject
from convoy_controllers.plan import Plan
from convoy_controllers.servingjob import attention
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import KIND
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gauges import show_serving
from convoy_operator.metrics import Metrics
from convoy_operator.serving_meter import ServingMeter, counted


def status(reason: str = "", times: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    progressing = [{"type": "Progressing", "status": "True", "reason": reason}] if reason else []
    groups = [{"role": "worker", "number": 0, "times": list(times)}]
    return {"conditions": progressing, "internal": {"groups": groups}, **more}


def held(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (status(), status("RolloutComplete"), ("complete", 0)),
        (status("RolloutComplete"), status("RolloutComplete"), (None, 0)),
        (status("RollingOut"), status("RevisionFailed"), ("halted", 0)),
        (status("RollingOut"), status("ProgressDeadlineExceeded"), ("halted", 0)),
        (status("RevisionFailed"), status("RollingOut"), (None, 0)),
        (status(times=("a",)), status(times=("a", "b")), (None, 1)),
        (status(times=("a", "b")), status(times=("b",)), (None, 0)),
        ({}, status(times=("a",)), (None, 1)),
    ],
)
def test_a_change_of_the_status_is_counted_once(
    before: dict[str, Any], after: dict[str, Any], expected: tuple[str | None, int]
) -> None:
    assert counted(before, after) == expected


def test_a_change_is_counted_when_it_is_stored() -> None:
    metrics, cache = Metrics(), ClusterCache()
    meter = ServingMeter(metrics, cache)

    def stored(version: int, found: dict[str, Any]) -> CachedObject:
        raw = {"metadata": {"name": "llm", "namespace": "default", "uid": "u"}, "status": found}
        return CachedObject("default", "llm", "u", version, raw)

    job = stored(1, status("RollingOut"))
    cache.objects(KIND).upsert(job)
    meter.before_status_write(job, Plan(status=status("RolloutComplete", ("a",))))
    assert held(metrics, "convoy_serving_rollouts_total", result="complete") == 0
    for version in (2, 3):
        cache.objects(KIND).upsert(stored(version, status("RolloutComplete", ("a",))))
    assert held(metrics, "convoy_serving_rollouts_total", result="complete") == 1
    assert held(metrics, "convoy_serving_restarts_total") == 1


def test_the_gauges_add_up_all_jobs() -> None:
    metrics = Metrics()
    roles = [{"name": "a", "desired": 3, "ready": 2, "updatedReady": 1}]
    available = {"type": "Available", "status": "True", "reason": "Serving"}
    missing = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}
    asleep = {"type": "Suspended", "status": "True", "reason": "Suspended"}
    traffic = {"p95Ms": 250.0, "requestsPerSecond": 4.0, "queue": 2, "inFlight": 1}
    jobs = [
        {"conditions": [available], "roles": roles, "traffic": traffic},
        {"conditions": [missing], "roles": roles, "traffic": {**traffic, "p95Ms": None}},
        {"conditions": [asleep]},
        {},
    ]
    show_serving(metrics, jobs)
    states = {one: held(metrics, "convoy_serving_jobs", state=one) for one in ("Available", "Unavailable")}
    assert states == {"Available": 1, "Unavailable": 2}
    assert held(metrics, "convoy_serving_jobs", state="Suspended") == 1
    replicas = [
        held(metrics, "convoy_serving_replicas", state=one) for one in ("desired", "ready", "updated")
    ]
    assert replicas == [6, 4, 2]
    assert held(metrics, "convoy_serving_queue") == 4
    assert held(metrics, "convoy_serving_slowest_latency_seconds") == 0.25
    assert held(metrics, "convoy_serving_jobs_need_attention", reason="MinimumReplicasUnavailable") == 1
    show_serving(metrics, [])
    assert held(metrics, "convoy_serving_slowest_latency_seconds") == 0
    assert held(metrics, "convoy_serving_jobs_need_attention", reason="MinimumReplicasUnavailable") == 0


def test_every_alerting_reason_needs_attention() -> None:
    for reason in (
        Reasons.MINIMUM_REPLICAS_UNAVAILABLE,
        Reasons.REVISION_FAILED,
        Reasons.PROGRESS_DEADLINE,
        Reasons.REPLICA_FAILED,
        Reasons.SLO_MISSED,
    ):
        assert reason.name in attention.REASONS
    assert Reasons.SERVING.name not in attention.REASONS
