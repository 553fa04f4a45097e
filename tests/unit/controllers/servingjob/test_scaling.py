"""Tests of roles that Convoy's autoscaler scales: decisions, their records, and the memory between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_engine

from convoy_controllers.resources import HORIZONTAL_POD_AUTOSCALERS
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.scaling.settings import settings
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_scaling import Scaling

SYNC = 15.0
WAITING = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "convoy_num_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": 2},
    },
}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def scaled(**scaling: Any) -> dict[str, Any]:
    """Return the field `scaling` with limits 1 and 4, and the waiting requests as its metric."""
    return {"minReplicas": 1, "maxReplicas": 4, "metrics": [WAITING], **scaling}


def servers(job: dict[str, Any] | None = None, **scaling: Any) -> Servers:
    """Return a running job whose role Convoy scales."""
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled(**scaling)}
    made = Servers(roles=[role], replicas=None, **(job or {}))
    made.engines["activator"] = make_engine("activator")
    made.load = idle
    return made.run(4, SYNC)


def idle(pod: Any) -> Load:
    """Return the load of a replica without requests."""
    return Load(1.0, 60.0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.1)


def waiting(total: int) -> Any:
    """Return the loads of replicas with `total` waiting requests each."""
    return lambda pod: replace(idle(pod), waiting=total)


def desired(made: Servers, role: str = "worker") -> int:
    return next(one.desired for one in made.job.status.roles if one.name == role)


def test_a_load_adds_replicas_and_its_end_removes_them_after_the_window() -> None:
    it = servers()
    assert (desired(it), it.serving) == (1, 1)
    it.load = waiting(6)
    it.run(1, SYNC)
    assert desired(it) == 3, "ceil(1 x 6 / 2)"
    it.load = waiting(2)
    it.run(2, SYNC)
    assert (desired(it), it.serving) == (3, 3)
    it.load = idle
    it.run(18, SYNC)
    assert desired(it) == 3, "the stabilization window is not over"
    it.run(6, SYNC)
    assert (desired(it), it.serving) == (1, 1)


def test_each_change_is_recorded_with_its_reason_and_an_event() -> None:
    it = servers()
    it.load = waiting(6)
    made = it.step()
    newest = it.job.status.scaling[0].decisions[0]
    assert (newest.from_replicas, newest.to_replicas, newest.reason) == (1, 3, "AboveTarget")
    assert newest.time == it.now == it.job.status.last_scale_time
    assert "convoy_num_requests_waiting 6, target 2" in newest.message
    assert [one.reason.name for one in made.events] == ["SuccessfulRescale"]
    assert made.events[0].message == f"role worker: {newest.message}"
    assert it.condition["AbleToScale"] == ("True", "SucceededRescale")
    assert it.condition["ScalingActive"] == ("True", "ValidMetricFound")


def test_the_status_keeps_the_last_five_decisions() -> None:
    it = servers(behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    for _ in range(4):
        it.load = waiting(6)
        it.run(1, SYNC)
        it.load = idle
        it.run(1, SYNC)
    assert len(it.job.status.scaling[0].decisions) == 5
    times = [one.time for one in it.job.status.scaling[0].decisions]
    assert times == sorted(times, reverse=True)


def test_decisions_are_15_seconds_apart() -> None:
    it = servers()
    it.load = waiting(6)
    it.step()
    it.load = waiting(9)
    it.wait(SYNC - 0.5)
    assert it.step().requeue_after == pytest.approx(0.5)
    assert desired(it) == 3
    it.wait(0.5).step()
    assert desired(it) == 4


def test_an_idle_job_writes_nothing() -> None:
    it = servers()
    it.run(30, SYNC)
    for _ in range(10):
        assert it.step().status is None
        it.wait(SYNC)


def test_replicas_that_start_are_not_counted_a_second_time() -> None:
    it = servers(maxReplicas=16)
    it.good = lambda pod: pod.name == "llm-worker-0-0"
    it.load = waiting(4)
    it.run(8, SYNC)
    assert desired(it) == 2, "4 waiting requests at one replica, and a target of 2, need two replicas"


def test_a_silent_agent_is_a_missing_sample() -> None:
    it = servers()
    it.load = waiting(6)
    it.run(2, SYNC)
    it.load = lambda pod: None
    it.run(40, SYNC)
    assert desired(it) == 3
    assert it.condition["ScalingActive"] == ("False", "FailedGetPodsMetric")
    assert it.job.status.reason == "FailedGetPodsMetric"


def test_a_job_that_starts_does_not_warn_of_missing_metrics() -> None:
    it = Servers(roles=[{"name": "worker", "engine": {"name": "lm"}, "scaling": scaled()}], replicas=None)
    it.good = lambda pod: False
    it.run(4, SYNC)
    assert "ScalingActive" not in it.condition
    it.run(4, SYNC)
    assert it.condition["ScalingActive"] == ("False", "ReplicasStarting")
    it.good = lambda pod: True
    it.run(3, SYNC)
    assert it.serving == 1
    it.load = idle
    it.run(2, SYNC)
    assert it.condition["ScalingActive"] == ("True", "ValidMetricFound")
    assert "FailedGetPodsMetric" not in it.events


def test_a_job_whose_status_is_lost_keeps_its_replicas() -> None:
    it = servers()
    it.load = waiting(6)
    it.run(6, SYNC)
    assert it.serving == 4
    it.job = ServingJob.model_validate({**it.job.to_dict(), "status": {}})
    it.memory = {}
    it.run(4, SYNC)
    assert (desired(it), it.serving) == (4, 4)


def test_a_start_of_the_operator_changes_no_condition() -> None:
    it = servers()
    it.run(30, SYNC)
    it.memory = {}
    it.load = lambda pod: None
    for _ in range(4):
        assert it.step().status is None, "the agents have not reported again yet"
        it.wait(SYNC)
    it.load = idle
    it.run(30, SYNC)
    assert it.step().status is None


def test_a_start_of_the_operator_does_not_scale_down_at_once() -> None:
    it = servers()
    it.load = waiting(6)
    it.run(2, SYNC)
    it.load = idle
    it.run(15, SYNC)
    it.memory = {}
    it.run(19, SYNC)
    assert desired(it) == 3
    it.run(5, SYNC)
    assert desired(it) == 1


def test_a_stored_decision_whose_plan_failed_is_not_made_twice() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    it = servers(behavior=behavior)
    before = it.memory
    it.load = waiting(9)
    it.step()
    assert desired(it) == 2
    it.memory = before
    it.run(4, 1)
    assert desired(it) == 2, "a decision within 15 s"
    it.memory = before
    it.wait(SYNC).step()
    assert desired(it) == 2, "the policy allows one replica in 60 s"
    assert [one.change for one in it.memory["worker"].state.scale_ups] == [1]


def test_limits_hold_without_a_metric() -> None:
    it = servers()
    it.load = lambda pod: None
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled(minReplicas=2)}
    it.edit(roles=[role]).run(2, SYNC)
    assert desired(it) == 2
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled(maxReplicas=1)}
    it.edit(roles=[role]).run(2, SYNC)
    assert desired(it) == 1
    assert it.job.status.scaling[0].decisions[0].reason == "AboveMaxReplicas"


def test_the_maximum_is_shown() -> None:
    it = servers()
    it.load = waiting(90)
    it.run(2, SYNC)
    assert it.condition["ScalingLimited"] == ("True", "TooManyReplicas")
    assert "scaling.maxReplicas=4" in it.message("ScalingLimited")


def test_scaling_that_is_turned_on_starts_with_the_present_number() -> None:
    it = Servers(replicas=3).run(4, SYNC)
    it.load = idle
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled()}
    it.edit(roles=[role], replicas=None).run(10, SYNC)
    assert desired(it) == 3
    it.edit(roles=[{**role, "scaling": scaled(mode="None")}]).run(30, SYNC)
    assert desired(it) == 3
    assert "ScalingActive" not in it.condition
    assert it.job.status.scaling == [] and it.job.status.last_scale_time is None


def test_a_role_at_zero_starts_when_scaling_is_turned_on() -> None:
    it = Servers(replicas=0).run(2, SYNC)
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled(minReplicas=2)}
    it.edit(roles=[role], replicas=None).run(4, SYNC)
    assert (desired(it), it.serving) == (2, 2)


def test_each_role_scales_on_its_own() -> None:
    router = {"name": "router", "engine": {"name": "lm"}, "scaling": scaled()}
    worker = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled()}
    it = Servers(roles=[worker, router], scaledRole="worker", replicas=None)
    it.load = lambda pod: waiting(6)(pod) if "router" in pod.name else idle(pod)
    it.run(10, SYNC)
    assert (desired(it), desired(it, "router")) == (1, 4)
    assert it.condition["ScalingLimited"][0] == "True"


def test_a_suspended_job_keeps_its_number() -> None:
    it = servers()
    it.load = waiting(6)
    it.run(2, SYNC)
    it.load = waiting(2)
    it.edit(suspend=True).run(6, SYNC)
    assert (desired(it), len(it.pods)) == (3, 0)
    assert "ScalingActive" not in it.condition
    it.edit(suspend=False).run(4, SYNC)
    assert (desired(it), it.serving) == (3, 3)


def test_the_processor_use_is_a_share_of_the_request() -> None:
    it = servers(metrics=[CPU])
    for name in it.pods:
        it.pod(name, started=it.now.timestamp() - 900, cpu_millicores=200, container="ranks")
    it.load = lambda pod: replace(idle(pod), cores=0.3)
    it.step()
    assert desired(it) == 3, "150 % of the request, and a target of 50 %"


def test_a_missing_request_is_named() -> None:
    it = servers(metrics=[CPU])
    for name in it.pods:
        it.pod(name, started=it.now.timestamp() - 900, container="ranks")
    it.run(6, SYNC)
    assert it.condition["ScalingActive"] == ("False", "FailedGetResourceMetric")
    assert "container ranks of pod llm-worker-0-0 requests no cpu" in it.message("ScalingActive")


def test_a_job_goes_to_zero_after_its_cooldown_and_back_for_a_request() -> None:
    it = servers(minReplicas=0, cooldownSeconds=60, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    assert desired(it) == 1
    it.run(6, SYNC)
    assert desired(it) == 0
    newest = it.job.status.scaling[0].decisions[0]
    assert (newest.to_replicas, newest.reason) == (0, "Idle")


def test_a_job_that_works_without_a_queue_does_not_go_to_zero() -> None:
    it = servers(minReplicas=0, cooldownSeconds=60)
    it.load = lambda pod: replace(idle(pod), quiet_seconds=12.0)
    it.run(8, SYNC)
    assert desired(it) == 1
    it.load = idle
    it.run(6, SYNC)
    assert desired(it) == 0


def test_a_horizontal_pod_autoscaler_gets_the_limits_and_metrics() -> None:
    role = {
        "name": "worker",
        "engine": {"name": "lm"},
        "scaling": {**scaled(metrics=[CPU]), "mode": "HorizontalPodAutoscaler"},
    }
    it = Servers(roles=[role], replicas=2).run(4, SYNC)
    key = (HORIZONTAL_POD_AUTOSCALERS, "llm-worker")
    spec = it.objects[key]["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "name": "llm",
    }
    assert (spec["minReplicas"], spec["maxReplicas"], spec["metrics"]) == (1, 4, [CPU])
    it.edit(replicas=4).run(4, SYNC)
    assert it.serving == 4
    assert "ScalingActive" not in it.condition
    it.edit(roles=[{**role, "scaling": None}]).run(2, SYNC)
    assert key not in it.objects


def test_a_second_of_waiting_costs_no_write() -> None:
    it = servers()
    it.run(30, SYNC)
    it.load = waiting(1)
    it.step()
    assert it.wait(SYNC).step().status is None, "a metric that changes within its limits changes no status"


def test_the_settings_are_those_of_the_spec() -> None:
    given = Scaling.model_validate(
        scaled(
            metrics=[{**WAITING, "activationThreshold": "1500m"}],
            behavior={
                "scaleUp": {"tolerance": "0.05", "selectPolicy": "Min"},
                "scaleDown": {"policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]},
            },
            cooldownSeconds=30,
        )
    )
    made = settings(given)
    assert (made.min_replicas, made.max_replicas, made.cooldown_seconds) == (1, 4, 30.0)
    assert (made.metrics[0].target.value, made.metrics[0].activation) == (2000, 1500)
    assert made.behavior is not None
    assert made.behavior.scale_up.tolerance == 0.05
    assert len(made.behavior.scale_up.policies) == 2, "the default policies"
    assert made.behavior.scale_down.policies[0].value == 10
    assert settings(Scaling(max_replicas=2)).metrics[0].name == "cpu"


def test_a_role_that_is_renamed_keeps_its_number_of_replicas() -> None:
    it = servers()
    it.load = waiting(6)
    it.run(1, SYNC)
    it.load = waiting(2)
    it.run(3, SYNC)
    it.edit(roles=[{"name": "server", "engine": {"name": "lm"}, "scaling": scaled()}])
    for _ in range(30):
        it.step()
        assert it.serving >= 3
        it.wait(1)
    assert desired(it, "server") == 3 and len(it.live(role="server")) == 3


def test_a_change_is_stored_before_its_pods_are_created() -> None:
    it = servers()
    assert not it.step().status_first
    it.load = waiting(6)
    made = it.wait(SYNC).step()
    assert made.status_first and len(made.creations) == 2
