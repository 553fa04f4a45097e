"""Tests of the metrics of ServingJobs: gauges from their statuses, counts of rollouts and restarts."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter
from structlog.testing import capture_logs

from convoy_controllers.autoscale import samples, spec
from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.state import State
from convoy_controllers.cached import CachedObject
from convoy_controllers.plan import Plan
from convoy_controllers.servingjob import attention
from convoy_controllers.servingjob.scaling.memory import Memory, Sync
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import KIND
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gauges import show_serving
from convoy_operator.metrics import Metrics
from convoy_operator.serving_meter import Counted, ServingMeter, counted


def status(reason: str = "", times: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    progressing = [{"type": "Progressing", "status": "True", "reason": reason}] if reason else []
    groups = [{"role": "worker", "number": 0, "times": list(times)}]
    return {"conditions": progressing, "internal": {"groups": groups}, **more}


def scaled(*times: str) -> list[dict[str, Any]]:
    """Return decisions about the role `worker` at these times."""
    made = [{"time": one, "fromReplicas": 1, "toReplicas": 2, "reason": "AboveTarget"} for one in times]
    return [{"role": "worker", "decisions": made}]


def held(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (status(), status("RolloutComplete"), Counted("complete")),
        (status("RolloutComplete"), status("RolloutComplete"), Counted()),
        (status("RollingOut"), status("RevisionFailed"), Counted("halted")),
        (status("RollingOut"), status("ProgressDeadlineExceeded"), Counted("halted")),
        (status("RevisionFailed"), status("RollingOut"), Counted()),
        (status(times=("a",)), status(times=("a", "b")), Counted(restarts=1)),
        (status(times=("a", "b")), status(times=("b",)), Counted()),
        ({}, status(times=("a",)), Counted(restarts=1)),
        (status(), status(scaling=scaled("1")), Counted(decisions=("AboveTarget",))),
        (
            status(scaling=scaled("1", "2")),
            status(scaling=scaled("2", "3")),
            Counted(decisions=("AboveTarget",)),
        ),
        (status(scaling=scaled("1", "2")), status(scaling=scaled("2")), Counted()),
    ],
)
def test_a_change_of_the_status_is_counted_once(
    before: dict[str, Any], after: dict[str, Any], expected: Counted
) -> None:
    assert counted(before, after) == expected


def test_a_change_is_counted_when_it_is_stored() -> None:
    metrics, cache = Metrics(), ClusterCache()
    meter = ServingMeter(metrics, cache, lambda uid: None)

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


def test_the_decisions_of_the_autoscaler_are_counted_and_its_roles_added_up() -> None:
    metrics, cache = Metrics(), ClusterCache()
    meter = ServingMeter(metrics, cache, lambda uid: None)
    raw = {"metadata": {"name": "llm", "namespace": "default", "uid": "u"}}
    cache.objects(KIND).upsert(job := CachedObject("default", "llm", "u", 1, {**raw, "status": status()}))
    found = status(
        scaling=scaled("1"), roles=[{"name": "worker", "desired": 2, "replicas": 1}, {"name": "b"}]
    )
    meter.before_status_write(job, Plan(status=found))
    cache.objects(KIND).upsert(CachedObject("default", "llm", "u", 2, {**raw, "status": found}))
    assert held(metrics, "convoy_autoscaler_decisions_total", reason="AboveTarget") == 1
    assert held(metrics, "convoy_autoscaler_decisions_total", reason="BelowTarget") == 0
    show_serving(metrics, [found, status(roles=[{"name": "a", "desired": 3, "replicas": 3}])])
    assert held(metrics, "convoy_autoscaler_desired_replicas") == 2
    assert held(metrics, "convoy_autoscaler_current_replicas") == 1


def test_each_decision_is_logged_once_so_that_it_can_be_made_again() -> None:
    sample = samples.Sample(6000, 2.5)
    seen = samples.Observed(1, 1, (samples.Pod("a"),), ({"a": sample},))
    target = spec.Target(spec.TargetType.AVERAGE_VALUE, 2000)
    scaling = spec.Scaling(4, metrics=(spec.Metric(spec.MetricType.PODS, "waiting", target),))
    sync = Sync(scaling, seen, State(), 30.0, decide(scaling, seen, State(), 30.0))
    assert sync.decision.desired == 3
    memory = {"worker": Memory(sync.decision.state, sync=sync)}
    meter = ServingMeter(Metrics(), ClusterCache(), lambda uid: memory)
    job = CachedObject("default", "llm", "u", 1, {})
    with capture_logs() as logged:
        meter.after_reconcile(job)
        meter.after_reconcile(job)
    assert [line["role"] for line in logged] == ["worker"]
    again = TypeAdapter(Sync).validate_json(orjson.dumps(logged[0]["sync"]))
    assert again == sync
    assert decide(again.scaling, again.observed, again.state, again.at) == sync.decision


def test_the_gauges_add_up_all_jobs() -> None:
    metrics = Metrics()
    roles = [{"name": "a", "desired": 3, "ready": 2, "updatedReady": 1}]
    available = {"type": "Available", "status": "True", "reason": "Serving"}
    missing = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}
    asleep = {"type": "Suspended", "status": "True", "reason": "Suspended"}
    traffic = {"p95Ms": 250.0, "requestsPerSecond": 4.0, "queue": 2, "inFlight": 1}
    jobs: list[dict[str, Any]] = [
        {"conditions": [available], "roles": roles, "traffic": traffic},
        {
            "conditions": [missing],
            "currentRevision": "r",
            "roles": roles,
            "traffic": {**traffic, "p95Ms": None},
        },
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


def test_a_job_that_loads_its_first_model_needs_attention_only_without_progress() -> None:
    """A first load may take longer than the alert of too few replicas waits."""
    missing = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}
    halted = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    assert attention.needed({"conditions": [missing], "updateRevision": "r"}) == set()
    assert attention.needed({"conditions": [missing, halted]}) == {"ProgressDeadlineExceeded"}
    assert attention.needed({"conditions": [missing], "currentRevision": "r"}) == {missing["reason"]}


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
