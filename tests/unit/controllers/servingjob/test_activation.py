"""Tests of scale to zero: the activators, and the two switches of the Service."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_engine
from tests.unit.controllers.servingjob.test_scaling import desired, idle, scaled

from convoy_controllers.children import Apply, Create, Delete
from convoy_controllers.resources import CONTROLLER_REVISIONS, POD_DISRUPTION_BUDGETS, SERVICES
from convoy_controllers.servingjob.activation import SWITCH_SECONDS
from convoy_controllers.servingjob.pods import ACTIVATORS, REPLICAS
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_ENDPOINT, LABEL_ROLE

COOLDOWN = 30


def servers() -> Servers:
    """Return a job that scales to zero, before its first plan."""
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    scaling = scaled(minReplicas=0, cooldownSeconds=COOLDOWN, behavior=behavior)
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaling}
    made = Servers(roles=[role], replicas=None)
    made.engines["activator"] = make_engine("activator")
    made.load = idle
    return made


def held(total: int, role: str = "activator") -> Callable[[PodView], Any]:
    """Return a function from pods to loads: each pod of the role has `total` waiting requests."""
    return lambda pod: replace(idle(pod), waiting=total if pod.labels[LABEL_ROLE] == role else 0)


def at_zero() -> Servers:
    """Return a job at zero, with its activators."""
    return copy.deepcopy(_at_zero())


def serving() -> Servers:
    """Return a job that has come from zero to one replica."""
    return copy.deepcopy(_serving())


@functools.cache
def _at_zero() -> Servers:
    made = servers().settle()
    until(made, lambda: made.front == ACTIVATORS, steps=60, seconds=15)
    assert desired(made) == 0
    return made.settle()


@functools.cache
def _serving() -> Servers:
    made = at_zero()
    made.load = held(1)
    for _ in range(30):
        made.step()
        if made.front == REPLICAS:
            made.load = idle
            return made.settle()
        made.wait(1)
    raise AssertionError("the Service was not switched back")


def until(it: Servers, condition: Callable[[], bool], steps: int = 200, seconds: float = 1.0) -> None:
    """Reconcile until the condition holds."""
    for _ in range(steps):
        if condition():
            return
        it.step()
        it.wait(seconds)
    raise AssertionError("the condition does not hold")


def pods(it: Servers, role: str) -> list[PodView]:
    return it.live(role=role)


def test_a_job_at_zero_has_two_activators_and_no_replica() -> None:
    it = at_zero()
    assert len(pods(it, "activator")) == 2 and not pods(it, "worker")
    one = it.manifests[pods(it, "activator")[0].name]
    assert one["metadata"]["labels"][LABEL_ENDPOINT] == ACTIVATORS
    assert one["spec"]["automountServiceAccountToken"] is False
    container = one["spec"]["containers"][0]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["ports"] == [{"name": "convoy-http", "containerPort": 8080, "protocol": "TCP"}]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert it.condition["Available"] == ("True", "ScaledToZero")
    assert it.objects[POD_DISRUPTION_BUDGETS, "llm-activator"]["spec"]["minAvailable"] == 1
    # The activators' revision is no revision of the job.
    assert [key for key in it.objects if key[0] == CONTROLLER_REVISIONS] == [
        (CONTROLLER_REVISIONS, f"llm-{it.job.status.update_revision}")
    ]
    assert [one.name for one in it.job.status.roles] == ["worker"] and it.job.status.ready == "0/0"


def test_a_job_at_zero_without_a_ready_activator_is_not_available() -> None:
    it = at_zero()
    assert it.message("Available").endswith("activators hold the requests that arrive")
    it.good = lambda pod: False
    it.run(2, 1)
    assert it.condition["Available"] == ("False", "MinimumReplicasUnavailable")
    assert "role activator" in it.message("Available")
    it.good = lambda pod: True
    it.run(2, 1)
    assert it.condition["Available"] == ("True", "ScaledToZero")


def test_an_idle_job_at_zero_writes_nothing() -> None:
    it = at_zero()
    for _ in range(20):
        made = it.step()
        assert made.status is None and not made.creations and not made.deletions and not made.commands
        it.wait(15)


def test_a_held_request_starts_a_replica_at_once_and_gets_its_address() -> None:
    it = at_zero()
    it.good = lambda pod: pod.labels[LABEL_ROLE] == "activator"
    it.load = held(1)
    it.step()
    assert desired(it) == 1
    until(it, lambda: bool(pods(it, "worker")))
    it.run(20, 1)
    assert it.front == ACTIVATORS, "no replica is ready"
    assert {one.endpoints for one in it.slots.values()} == {()}
    it.good = lambda pod: True
    until(it, lambda: pods(it, "worker")[0].ready, steps=3)
    ready = it.now
    it.step()
    [worker] = pods(it, "worker")
    known = [it.slots[one.uid].endpoints for one in pods(it, "activator")]
    assert known == [(f"{worker.ip}:8080",)] * 2, "the addresses come with the event of readiness"
    assert it.front == ACTIVATORS, "proxies may not know the replica yet"
    until(it, lambda: it.front == REPLICAS, steps=6)
    assert (it.now - ready).total_seconds() >= 3
    assert len(pods(it, "activator")) == 2, "proxies may still lead to the activators"
    it.run(2, 1)
    assert not pods(it, "activator")


def test_an_activator_that_drains_learns_of_replicas_too() -> None:
    it = serving()
    it.load = idle
    until(it, lambda: it.front == ACTIVATORS, seconds=15)
    it.drains = False
    gone = pods(it, "activator")[0]
    it.pod(gone.name, deleting=True, ready=False)
    it.load = held(1)
    until(it, lambda: any(one.ready for one in pods(it, "worker")), steps=20)
    it.step()
    assert it.slots[gone.uid].endpoints == (f"{pods(it, 'worker')[0].ip}:8080",)


def test_the_last_replica_stays_until_the_service_leads_to_activators() -> None:
    it = serving()
    ready = {"activators": False}
    it.good = lambda pod: ready["activators"] or pod.labels[LABEL_ROLE] == "worker"
    until(it, lambda: desired(it) == 0, seconds=15)
    it.run(30, 5)
    assert it.front == REPLICAS and len(pods(it, "worker")) == 1
    assert it.condition["Available"] == ("True", "ScaledToZero")
    ready["activators"] = True
    until(it, lambda: it.front == ACTIVATORS, steps=10)
    assert len(pods(it, "worker")) == 1, "the switch is not known to be done yet"
    it.step()
    assert not pods(it, "worker")


def test_without_ready_activators_the_job_says_why() -> None:
    it = serving()
    it.places = lambda pod: pod.labels[LABEL_ROLE] == "worker"
    until(it, lambda: desired(it) == 0, seconds=15)
    it.run(30, 5)
    assert it.condition["Degraded"][0] == "True" and "activator-0" in it.message("Degraded")
    assert it.serving == 1


def test_a_request_that_comes_during_the_way_to_zero_stops_it() -> None:
    it = serving()
    until(it, lambda: desired(it) == 0, seconds=15)
    it.load = held(1, "worker")
    until(it, lambda: desired(it) == 1, steps=20)
    it.settle()
    assert it.front == REPLICAS and it.serving == 1 and not pods(it, "activator")


def test_a_roll_of_the_model_leaves_activators_alone() -> None:
    it = at_zero()
    before = {one.uid for one in pods(it, "activator")}
    role = it.job.spec.roles[0].to_dict()
    it.edit(roles=[{**role, "engine": {"name": "lm", "params": {"size": 2}}}]).settle()
    assert {one.uid for one in pods(it, "activator")} == before
    assert it.condition["Progressing"] == ("True", "RolloutComplete")


@pytest.mark.parametrize("change", ["image", "port", "hold"])
def test_a_change_of_activators_rolls_them_one_at_a_time(change: str) -> None:
    it = at_zero()
    before = {one.uid for one in pods(it, "activator")}
    if change == "image":
        it.engines["activator"] = make_engine("activator", image="convoy/serving:next")
    elif change == "hold":
        role = it.job.spec.roles[0].to_dict()
        it.edit(roles=[{**role, "scaling": {**role["scaling"], "holdSeconds": 900}}])
    else:
        it.edit(service={"port": 9000})
    least = 2
    for _ in range(40):
        it.step()
        least = min(least, sum(one.ready for one in pods(it, "activator")))
        it.wait(1)
    assert least == 2 and not before & {one.uid for one in pods(it, "activator")}
    assert len(pods(it, "activator")) == 2 and it.front == ACTIVATORS


@pytest.mark.parametrize(("given", "params", "grace"), [(60, {}, 613), (900, {"hold_seconds": 900}, 913)])
def test_the_spec_bounds_the_time_for_which_requests_wait(
    given: int, params: dict[str, int], grace: int
) -> None:
    """A pod of an activator has the time to pass on what it holds."""
    it = at_zero()
    role = it.job.spec.roles[0].to_dict()
    it.edit(roles=[{**role, "scaling": {**role["scaling"], "holdSeconds": given}}]).settle().run(20)
    for pod in pods(it, "activator"):
        spec = it.manifests[pod.name]["spec"]
        variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
        assert json.loads(variables["CONVOY_PARAMS"]) == params
        assert spec["terminationGracePeriodSeconds"] == grace


def test_a_broken_revision_does_not_keep_activators_from_being_repaired() -> None:
    it = at_zero()
    it.rollout(paused=True)
    name = pods(it, "activator")[0].name
    it.exit(name)
    it.run(10, 2)
    assert len([one for one in pods(it, "activator") if one.ready]) == 2
    it._remove(name)
    it.run(10, 2)
    assert len([one for one in pods(it, "activator") if one.ready]) == 2


def test_scale_to_zero_may_be_turned_off_at_zero() -> None:
    it = at_zero()
    role = it.job.spec.roles[0].to_dict()
    it.edit(roles=[{**role, "scaling": {**role["scaling"], "minReplicas": 1}}])
    del it.engines["activator"]
    until(it, lambda: it.front == REPLICAS and it.serving == 1 and not pods(it, "activator"), steps=60)


@pytest.mark.parametrize("scaling", [None, {"mode": "None"}])
def test_a_job_at_zero_that_nothing_scales_any_more_starts_a_replica(scaling: dict[str, Any] | None) -> None:
    it = at_zero()
    role = it.job.spec.roles[0].to_dict()
    other = {} if scaling is None else {"scaling": {**role["scaling"], "minReplicas": 1, **scaling}}
    it.edit(roles=[{**{name: value for name, value in role.items() if name != "scaling"}, **other}])
    until(it, lambda: it.front == REPLICAS and it.serving == 1 and not pods(it, "activator"), steps=60)


def test_a_job_without_a_service_is_not_planned_each_second() -> None:
    it = at_zero()
    del it.objects[SERVICES, "llm"]
    assert (it.step().requeue_after or math.inf) > SWITCH_SECONDS


def test_activators_survive_the_loss_of_their_engine() -> None:
    it = at_zero()
    del it.engines["activator"]
    it.run(20, 5)
    assert len(pods(it, "activator")) == 2 and it.front == ACTIVATORS
    assert it.condition["Valid"] == ("False", "UnknownEngine")


def test_scale_to_zero_needs_its_engine() -> None:
    it = servers()
    del it.engines["activator"]
    it.step()
    assert it.condition["Valid"] == ("False", "UnknownEngine")
    assert it.message("Valid").startswith("spec.roles[0].scaling.minReplicas: 0 needs Engine 'activator'")


def test_no_role_may_name_the_engine_of_activators() -> None:
    it = Servers(roles=[{"name": "worker", "engine": {"name": "activator"}}])
    it.engines["activator"] = make_engine("activator")
    it.step()
    assert it.condition["Valid"] == ("False", "InvalidSpec")
    assert it.message("Valid").startswith("spec.roles[0].engine.name: Engine 'activator' is for Convoy's own")


def test_activators_save_no_state() -> None:
    it = at_zero()
    it.edit(checkpoint={"tiers": {"local": {}}}).settle()
    it._remove(pods(it, "activator")[0].name)
    it.settle()
    assert it.assigned[-1].role == "activator" and it.assigned[-1].replica_state is None
    assert "Checkpointing" not in it.condition


def test_a_suspended_job_has_neither_activators_nor_replicas() -> None:
    it = at_zero()
    it.edit(suspend=True).run(5)
    assert not it.pods and it.front == REPLICAS
    it.edit(suspend=False).settle()
    assert it.front == ACTIVATORS and len(pods(it, "activator")) == 2


def test_a_template_shares_its_tolerations_but_not_its_gpu() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"tolerations": [toleration], "nodeSelector": {"gpu": "a100"}, "containers": [limits]}
    it = at_zero()
    role = it.job.spec.roles[0].to_dict()
    it.edit(roles=[{**role, "template": {"spec": spec}}]).settle()
    made = it.manifests[pods(it, "activator")[0].name]["spec"]
    assert made["tolerations"] == [toleration] and "gpu" not in made["nodeSelector"]
    assert "nvidia.com/gpu" not in str(made["containers"][0]["resources"])


def lose_plans(it: Servers, kept: Callable[[int], bool], steps: int) -> None:
    """Reconcile; of each plan, carry out only the children and commands whose position `kept` accepts, as if
    the operator ended at that point.
    """
    carry_out, command = it._carry_out, it._command
    position = itertools.count()

    def some(act: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda one: act(one) if kept(next(position)) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(it, "_carry_out", some(carry_out))
        patch.setattr(it, "_command", some(command))
        for _ in range(steps):
            it.step()
            check(it)
            it.wait(1)


def check(it: Servers) -> None:
    """Check that the Service leads to a ready pod."""
    ends = [
        one for one in it.pods.values() if one.labels.get(LABEL_ENDPOINT) == it.front and not one.deleting
    ]
    assert any(one.ready for one in ends), f"no ready pod is behind {it.front}"


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("to_zero", [False, True])
def test_an_operator_that_ends_in_the_midst_of_a_plan_never_leaves_the_service_without_pods(
    to_zero: bool, every: int
) -> None:
    it = serving() if to_zero else at_zero()
    if to_zero:
        until(it, lambda: desired(it) == 0, seconds=15)
    else:
        it.load = held(1)
    for phase in range(every):
        lose_plans(it, lambda number, phase=phase: number % every == phase, 12)  # type: ignore[misc]
    for _ in range(20):
        it.step()
        check(it)
        it.wait(1)
    assert it.front == (ACTIVATORS if to_zero else REPLICAS)


def test_the_service_is_switched_by_an_ordinary_apply_and_nothing_else() -> None:
    it = at_zero()
    it.load = held(1)
    before = len(it.plans)
    until(it, lambda: it.front == REPLICAS, steps=60)
    it.load = idle
    until(it, lambda: it.front == ACTIVATORS, steps=200, seconds=15)
    for made in it.plans[before:]:
        for child in made.children:
            if isinstance(child, Apply) and child.resource == SERVICES:
                assert set(child.manifest["spec"]) == {"type", "selector", "ports"}
            assert isinstance(child, Apply | Create | Delete)


def test_a_minimum_above_zero_brings_a_replica_before_the_activators_go() -> None:
    it = at_zero()
    it.wait(1).step()
    it.good = lambda pod: pod.labels[LABEL_ROLE] == "activator"
    role = {"name": "worker", "engine": {"name": "lm"}, "scaling": scaled(minReplicas=1)}
    it.edit(roles=[role])
    for _ in range(20):
        it.step()
        check(it)
        it.wait(1)
    assert desired(it) == 1 and it.front == ACTIVATORS, "no replica is ready yet"
    it.good = lambda pod: True
    until(it, lambda: it.front == REPLICAS, steps=20)
    it.settle()
    assert not pods(it, "activator") and len(pods(it, "worker")) == 1


def test_without_a_ready_activator_the_last_replica_survives_its_restarts() -> None:
    it = servers().settle()
    it.good = lambda pod: pod.labels[LABEL_ROLE] == "worker"
    until(it, lambda: desired(it) == 0, steps=60, seconds=15)
    assert it.run(5, 1).condition["Available"] == ("True", "ScaledToZero")
    it.good = lambda pod: False
    it.run(5, 1)
    assert len(pods(it, "worker")) == 1 and it.front == REPLICAS
    assert it.condition["Available"] == ("False", "MinimumReplicasUnavailable")
    it.good = lambda pod: True
    until(it, lambda: it.front == ACTIVATORS, steps=20)
    assert not pods(it.settle(), "worker")


def test_the_time_of_a_suspended_job_is_no_idle_time() -> None:
    it = serving()
    it.edit(suspend=True).settle().wait(3600)
    it.edit(suspend=False)
    it.run(COOLDOWN - 5, 1)
    assert desired(it) == 1 and len(pods(it, "worker")) == 1
    until(it, lambda: desired(it) == 0, steps=20, seconds=5)
