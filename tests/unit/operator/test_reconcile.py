"""Tests of the execution of plans with an API server in memory. The tests set the plans."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ConfigDict

from convoy_controllers.children import Create, EndPod, Event, delete_pod
from convoy_controllers.commands import PickPort
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.resources import PODS, TRAINING_JOBS
from convoy_controllers.trainingjob.controller import CONTROLLER
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.meta import Model
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import errors, views

from .conftest import FakeApi
from .reconciling import Operator

KEY = Key(TRAINING_JOB.name, "ns", "job")


class TrainingJob(Model):
    """A model of a job that accepts any field."""

    model_config = ConfigDict(extra="allow")


class Harness(Operator):
    """A reconciler of one job. The test sets the job's plan."""

    def __init__(self, api: FakeApi, **settings: Any) -> None:
        self.plan: Callable[[Any, Mapping[str, Refusal]], Plan] = lambda parent, refused: Plan()
        controller = replace(
            CONTROLLER,
            subject=replace(TRAINING_JOB, model=TrainingJob),
            observe=self._observed,
            plan=lambda observed, now: self.plan(*observed),
            waits_for=lambda reader, key: (),
        )
        super().__init__(api, controllers=(controller, *CONTROLLERS[1:]), **settings)
        self.cache.jobs.upsert(
            views.cached_object(
                api.put(TRAINING_JOBS, {"metadata": {"name": "job", "generation": 1}, "spec": {}}, "ns")
            )
        )

    def _observed(self, reader: Any, key: Key) -> tuple[Any, Mapping[str, Refusal]] | None:
        parent = self.cache.jobs.get(key.namespace, key.name)
        return (parent, reader.refused(parent.uid, parent.generation)) if parent is not None else None

    @property
    def uid(self) -> str:
        job = self.cache.jobs.get("ns", "job")
        assert job is not None
        return job.uid

    def stored(self) -> dict[str, Any]:
        return self.api.objects["trainingjobs", "ns", "job"].get("status", {})

    def pod(self, name: str, intent: str = "h", owner: str | None = None) -> dict[str, Any]:
        return {
            "metadata": {
                "name": name,
                "labels": {"convoy.dev/job": "job"},
                "annotations": {"convoy.dev/intent-hash": intent},
                "ownerReferences": [{"uid": owner or self.uid, "controller": True}],
            },
            "spec": {"containers": [{"name": "w"}]},
        }

    def errors(self, cause: str) -> float:
        return self.metrics.reconcile_errors.labels(TRAINING_JOB.name, cause)._value.get()


def creations(*bodies: Mapping[str, Any], dry_run: bool = False) -> tuple[Create, ...]:
    return tuple(Create(PODS, body, dry_run) for body in bodies)


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


async def test_an_equal_status_is_not_written_again(it: Harness) -> None:
    it.plan = lambda parent, refused: Plan(status={"phase": "Pending", "progress": {"loss": 1.0}})
    await it.reconciler.handle(KEY)
    await it.reconciler.handle(KEY)
    assert it.stored() == {"phase": "Pending", "progress": {"loss": 1}}
    assert it.api.count("patch_status") == 1


async def test_a_reconcile_observes_the_writes_of_the_previous_one(it: Harness) -> None:
    seen = []
    it.plan = lambda parent, refused: seen.append(dict(parent.status)) or Plan(status={"n": len(seen)})
    await it.reconciler.handle(KEY)
    await it.reconciler.handle(KEY)
    assert seen == [{}, {"n": 1}], "no watch event came between"


async def test_a_conflict_sends_no_command_and_requeues(it: Harness) -> None:
    it.api.put(TRAINING_JOBS, it.api.objects["trainingjobs", "ns", "job"], "ns")
    it.plan = lambda parent, refused: Plan(
        status={"incarnation": 1},
        status_first=True,
        children=creations(it.pod("job-worker-0")),
        commands=(PickPort("n", "u", 1),),
        events=(Event(Reasons.TRAINING, "m"),),
    )
    await it.reconciler.handle(KEY)
    assert it.sent == [] and it.api.count("create") == 0
    assert it.errors("conflict") == 1
    assert KEY in it.queue


async def test_a_higher_incarnation_is_stored_before_children_and_commands(it: Harness) -> None:
    order: list[str] = []
    it.api.fail = lambda verb, plural, name: order.append(f"{verb} {plural}")  # type: ignore[func-returns-value]
    it.reconciler._context = replace(it.reconciler._context, send=lambda command: order.append("command"))
    it.plan = lambda parent, refused: Plan(
        status={"incarnation": 1},
        status_first=True,
        children=creations(it.pod("job-worker-0")),
        commands=(PickPort("n", "u", 1),),
    )
    await it.reconciler.handle(KEY)
    assert order == ["patch_status trainingjobs", "create pods", "command"]


async def test_created_pods_are_observed_immediately(it: Harness) -> None:
    it.plan = lambda parent, refused: Plan(children=creations(*(it.pod(f"job-worker-{n}") for n in range(3))))
    await it.reconciler.handle(KEY)
    assert [pod.name for pod in it.cache.pods.indexed(("ns", "job"))] == [f"job-worker-{n}" for n in range(3)]


async def test_concurrent_creates_are_limited(api: FakeApi) -> None:
    it = Harness(api, parallel_creates=5)
    under_way = most = 0
    create = api.create

    async def slow(*args: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await create(*args)

    api.create = slow  # type: ignore[method-assign]
    it.plan = lambda parent, refused: Plan(
        children=creations(*(it.pod(f"job-worker-{n}") for n in range(20)))
    )
    await it.reconciler.handle(KEY)
    assert most == 5 and len(it.cache.pods) == 20


async def test_an_own_pod_that_exists_already_counts_as_created(it: Harness) -> None:
    it.api.put(PODS, it.pod("job-worker-0"), "ns")
    it.plan = lambda parent, refused: Plan(children=creations(it.pod("job-worker-0")))
    await it.reconciler.handle(KEY)
    assert it.cache.pods.get("ns", "job-worker-0") is not None
    assert it.errors("api") == 0


async def test_a_job_deleted_while_its_pods_are_refused_leaves_no_refusals(it: Harness) -> None:
    def refuse(verb: str, plural: str, name: str) -> Exception | None:
        if (verb, plural) != ("create", "pods"):
            return None
        it.cache.jobs.remove(job)
        return errors.Invalid(422, "the namespace is being terminated")

    job = it.cache.jobs.get("ns", "job")
    assert job is not None
    it.api.fail = refuse
    pod = it.pod("job-worker-0")
    it.plan = lambda parent, refused: Plan(children=creations(pod))
    await it.reconciler.handle(KEY)
    assert it.errors("bug") == 0
    assert it.refusals.wait(job.uid) is None


async def test_a_foreign_pod_of_the_same_name_is_reported(it: Harness) -> None:
    it.api.put(PODS, it.pod("job-worker-0", owner="stranger"), "ns")
    it.plan = lambda parent, refused: Plan(
        children=() if refused else creations(it.pod("job-worker-0")),
        status={"said": {pod: one.message for pod, one in refused.items()}},
    )
    await it.reconciler.handle(KEY)
    assert "is not this job's" in it.stored()["said"]["job-worker-0"]
    assert it.cache.pods.get("ns", "job-worker-0") is None


async def test_a_refused_pod_is_reported_once_and_retried_with_back_off(it: Harness) -> None:
    it.api.fail = lambda verb, plural, name: (
        errors.Invalid(422, "spec.containers: bad") if (verb, plural) == ("create", "pods") else None
    )
    it.plan = lambda parent, refused: Plan(
        children=() if refused else creations(*(it.pod(f"job-worker-{n}") for n in range(100))),
        status={"said": sorted(one.message for one in refused.values())[:1]},
    )
    for _ in range(1000):
        await it.reconciler.handle(KEY)
        it.time += 0.1
    tried = it.api.count("create", "pods")
    assert tried <= 50 * 10, "in 100 s: 0, 0.5, 1, 2, 4, ... and at most one batch each"
    assert tried >= 5
    assert it.stored()["said"] == ["spec.containers: bad"]
    assert it.api.count("patch_status") == 1, "the status never changes back and forth"


async def test_a_new_generation_is_tried_immediately(it: Harness) -> None:
    it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "quota") if plural == "pods" else None
    it.plan = lambda parent, refused: Plan(children=() if refused else creations(it.pod("job-worker-0")))
    await it.reconciler.handle(KEY)
    await it.reconciler.handle(KEY)
    assert it.api.count("create", "pods") == 1
    raw = it.api.objects["trainingjobs", "ns", "job"]
    raw["metadata"]["generation"] = 2
    it.cache.jobs.upsert(views.cached_object(it.api.put(TRAINING_JOBS, raw, "ns")))
    await it.reconciler.handle(KEY)
    assert it.api.count("create", "pods") == 2


async def test_only_the_observed_pod_is_deleted(it: Harness) -> None:
    other = it.api.put(PODS, it.pod("job-worker-0"), "ns")
    it.plan = lambda parent, refused: Plan(
        children=(delete_pod("job-worker-0", "another-uid"), delete_pod("gone", "u"))
    )
    await it.reconciler.handle(KEY)
    assert it.api.objects["pods", "ns", "job-worker-0"]["metadata"]["uid"] == other["metadata"]["uid"]
    assert it.errors("api") == 0


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30},
            True,
            id="it still terminates",
        ),
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 0},
            False,
            id="it is deleted",
        ),
        pytest.param(
            {
                "deletionTimestamp": "2026-01-01T00:00:30Z",
                "deletionGracePeriodSeconds": 0,
                "finalizers": ["x/y"],
            },
            True,
            id="a finalizer holds it",
        ),
    ],
)
async def test_a_deleted_pod_is_stored_as_in_the_response(
    it: Harness, answer: dict[str, Any], known: bool
) -> None:
    raw = it.api.put(PODS, it.pod("job-worker-0"), "ns")
    it.cache.pods.upsert(views.pod(raw))

    async def delete(resource: Any, namespace: Any, name: str, **options: Any) -> Any:
        assert options == {"uid": raw["metadata"]["uid"], "grace_seconds": 0}
        return {**raw, "metadata": {**raw["metadata"], **answer, "resourceVersion": "9999"}}

    it.api.delete = delete  # type: ignore[method-assign]
    it.plan = lambda parent, refused: Plan(
        children=(delete_pod("job-worker-0", raw["metadata"]["uid"], grace_seconds=0),)
    )
    await it.reconciler.handle(KEY)
    seen = it.cache.pods.get("ns", "job-worker-0")
    assert (seen is not None and seen.view.deleting) is known


async def test_progress_is_written_when_due(it: Harness) -> None:
    step = 0
    it.plan = lambda parent, refused: Plan(status={"phase": "Running", "progress": {"step": step}})
    await it.reconciler.handle(KEY)
    for step in range(1, 100):
        it.time += 1
        await it.reconciler.handle(KEY)
        assert KEY in it.queue or it.stored()["progress"]["step"] == step
    assert it.api.count("patch_status") == 1 + 9, "99 s at one in 10 s"


async def test_an_error_in_a_plan_is_reported_and_affects_only_its_object(it: Harness) -> None:
    def broken(parent: Any, refused: Any) -> Plan:
        raise ZeroDivisionError("oops")

    it.plan = broken
    await it.reconciler.handle(KEY)
    assert it.errors("bug") == 1
    assert KEY in it.queue
    recorder = it.recorder
    namespace, event = recorder._outbox.get_nowait()
    assert (namespace, event["reason"]) == ("ns", "ReconcileFailed")
    assert "ZeroDivisionError: oops" in event["message"]
    assert (it.stored()["phase"], it.stored()["reason"]) == ("Pending", "ReconcileFailed")
    await it.reconciler.handle(KEY)
    assert it.api.count("patch_status") == 1, "an existing status stays"


async def test_pods_are_created_after_a_dry_run_of_their_template(it: Harness) -> None:
    it.plan = lambda parent, refused: Plan(children=creations(body, dry_run=True)) if not refused else Plan()
    body = it.pod("job-worker-0")
    body["metadata"]["labels"]["convoy.dev/role"] = "worker"
    it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "quota") if verb == "dry_run" else None
    await it.reconciler.handle(KEY)
    assert it.api.count("dry_run", "pods") == 1 and it.api.count("create", "pods") == 0
    it.api.fail = lambda verb, plural, name: None
    it.time += 60
    for _ in range(2):
        await it.reconciler.handle(KEY)
    assert it.api.count("dry_run", "pods") == 2 and it.api.count("create", "pods") == 2
    assert it.errors("bug") == 0


@pytest.mark.parametrize("fault", [errors.Unavailable(503, "down"), errors.TooManyRequests(429, "later")])
async def test_an_unavailable_server_is_retried(it: Harness, fault: Exception) -> None:
    it.api.fail = lambda verb, plural, name: fault
    it.plan = lambda parent, refused: Plan(status={"a": 1}, commands=(PickPort("n", "u", 1),))
    await it.reconciler.handle(KEY)
    assert it.errors("api") == 1 and it.sent == [] and KEY in it.queue


async def test_a_new_leader_decides_nothing_before_agents_report(it: Harness) -> None:
    it.wait = 7.0
    it.plan = lambda parent, refused: pytest.fail("planned")
    await it.reconciler.handle(KEY)
    assert KEY in it.queue


async def test_the_parent_is_deleted_by_uid(it: Harness) -> None:
    it.plan = lambda parent, refused: Plan(delete_parent=True, requeue_after=5)
    await it.reconciler.handle(KEY)
    assert ("trainingjobs", "ns", "job") not in it.api.objects
    assert it.cache.jobs.get("ns", "job") is None
    await it.reconciler.handle(KEY)
    assert it.api.count("delete") == 1


async def test_a_deleted_job_is_dropped(it: Harness) -> None:
    job = it.cache.jobs.get("ns", "job")
    assert job is not None
    it.cache.jobs.remove(job)
    it.plan = lambda parent, refused: pytest.fail("planned")
    await it.reconciler.handle(KEY)
    assert KEY not in it.queue


async def test_a_refused_pod_that_is_no_longer_wanted_is_not_retried(it: Harness) -> None:
    it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "quota") if plural == "pods" else None
    it.plan = lambda parent, refused: Plan(children=() if refused else creations(it.pod("job-worker-0")))
    await it.reconciler.handle(KEY)
    assert it.refusals.wait(it.uid)
    it.plan = lambda parent, refused: Plan()
    it.time += 3600
    await it.reconciler.handle(KEY)
    assert it.refusals.wait(it.uid) is None


async def test_refusals_of_a_deleted_job_are_dropped(it: Harness) -> None:
    it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "quota") if plural == "pods" else None
    it.plan = lambda parent, refused: Plan(children=() if refused else creations(it.pod("job-worker-0")))
    await it.reconciler.handle(KEY)
    uid, parent = it.uid, it.cache.jobs.get("ns", "job")
    assert parent is not None
    it.cache.jobs.remove(parent)
    assert it.refusals.wait(uid) is None


async def test_a_restart_is_measured_after_the_status_is_stored(it: Harness) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    restarts = {"total": 1, "last": {"reason": "RankKilled", "at": at.isoformat()}}
    status = {"phase": "Restarting", "incarnation": 2, "restarts": restarts}
    it.plan = lambda parent, refused: Plan(status=status, status_first=True, fault_at=at.timestamp() - 0.5)
    value = it.metrics.registry.get_sample_value
    for _ in range(2):
        await it.reconciler.handle(KEY)
    assert value("convoy_restarts_total", {"reason": "RankKilled", "counted": "true"}) == 1
    assert value("convoy_recovery_seconds_sum", {"phase": "detect"}) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("refusal", "left"),
    [(None, True), (errors.Invalid(422, "no"), False), (errors.Forbidden(403, "no right"), False)],
)
async def test_an_ended_pod_gets_a_deadline_or_is_deleted_if_that_is_refused(
    it: Harness, refusal: Exception | None, left: bool
) -> None:
    uid = it.api.put(PODS, it.pod("job-worker-0"), "ns")["metadata"]["uid"]
    it.api.fail = lambda verb, plural, name: refusal if (verb, plural) == ("patch", "pods") else None
    it.plan = lambda parent, refused: Plan(children=(EndPod("job-worker-0", uid),))
    await it.reconciler.handle(KEY)
    assert (("pods", "ns", "job-worker-0") in it.api.objects) is left
    if left:
        stored = it.api.objects["pods", "ns", "job-worker-0"]
        assert stored["spec"]["activeDeadlineSeconds"] == 1
    assert it.errors("api") == it.errors("bug") == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda pod: pod["metadata"].update(labels={}), "label convoy.dev/job"),
        (lambda pod: pod["metadata"].update(labels=None), "label convoy.dev/job"),
        (lambda pod: pod["metadata"]["annotations"].clear(), "annotation convoy.dev/intent-hash"),
        (lambda pod: pod["metadata"].update(ownerReferences=[]), "the owner reference"),
        (lambda pod: pod["spec"].update(containers=[{"name": "other"}]), "container w"),
    ],
)
async def test_a_pod_without_its_label_after_admission_is_refused_and_deleted(
    it: Harness, change: Callable[[Any], None], named: str
) -> None:
    wanted = it.pod("job-worker-0")
    wanted["metadata"]["annotations"]["convoy.dev/container"] = "w"
    create = it.api.create

    async def mutating(resource: Any, namespace: Any, body: Any) -> Any:
        changed = copy.deepcopy(body)
        if resource is PODS:
            change(changed)
        return await create(resource, namespace, changed)

    it.api.create = mutating  # type: ignore[method-assign]
    seen: list[str] = []

    def planned(parent: Any, refused: Mapping[str, Refusal]) -> Plan:
        seen.extend(one.message for one in refused.values())
        return Plan(children=() if refused else creations(wanted))

    it.plan = planned
    await it.reconciler.handle(KEY)
    await it.reconciler.handle(KEY)
    assert seen and named in seen[0], seen
    assert not any(plural == "pods" for plural, _, _ in it.api.objects)
    assert it.api.count("create") == 1, "it is retried when the back-off ends"


async def test_a_pod_that_lost_its_label_is_replaced(it: Harness) -> None:
    hidden = it.pod("job-worker-0")
    hidden["metadata"]["labels"] = {}
    it.api.put(PODS, hidden, "ns")
    it.plan = lambda parent, refused: Plan(children=() if refused else creations(it.pod("job-worker-0")))
    await it.reconciler.handle(KEY)
    assert not any(plural == "pods" for plural, _, _ in it.api.objects)


async def test_admission_may_change_other_fields(it: Harness) -> None:
    wanted = it.pod("job-worker-0")
    wanted["metadata"]["annotations"]["convoy.dev/container"] = "w"
    create = it.api.create

    async def mutating(resource: Any, namespace: Any, body: Any) -> Any:
        changed = copy.deepcopy(body)
        changed["metadata"]["labels"]["team"] = "a"
        changed["metadata"]["finalizers"] = ["x.example.com/y"]
        changed["metadata"]["ownerReferences"].append({"uid": "another"})
        changed["spec"].update(
            containers=[
                {"name": "mesh"},
                {"name": "w", "image": "mirror/i", "resources": {"limits": {"cpu": 1}}},
            ],
            initContainers=[{"name": "fetch"}],
            tolerations=[{"operator": "Exists"}],
            nodeSelector={},
            priorityClassName="high",
        )
        return await create(resource, namespace, changed)

    it.api.create = mutating  # type: ignore[method-assign]
    it.plan = lambda parent, refused: Plan(children=creations(wanted))
    await it.reconciler.handle(KEY)
    found = it.cache.pods.get("ns", "job-worker-0")
    assert found is not None and (found.view.container, found.view.image) == ("w", "mirror/i")


async def test_no_memory_is_kept_of_a_job_that_was_deleted_meanwhile(it: Harness) -> None:
    uid, job = it.uid, it.cache.jobs.get("ns", "job")
    assert job is not None
    it.api.fail = lambda verb, plural, name: it.cache.jobs.remove(job) and None
    it.plan = lambda parent, refused: Plan(children=creations(it.pod("job-worker-0")), memory={"w": 1})
    await it.reconciler.handle(KEY)
    assert it.cache.jobs.get("ns", "job") is None and it.reader.memory(uid) is None
