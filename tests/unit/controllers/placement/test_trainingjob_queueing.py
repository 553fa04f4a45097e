"""Tests of the plans of a TrainingJob in a Kueue queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.placement.kueue_objects import NOW, admitted, condition, evicted, workload

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Create, Delete, PatchStatus
from convoy_controllers.placement.kueue.admission import condition as condition_of
from convoy_controllers.placement.kueue.objects import QueueObjects
from convoy_controllers.placement.kueue.priority import Priority
from convoy_controllers.plan import Plan
from convoy_controllers.resources import KUEUE_WORKLOADS, PODS
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob import queueing, workloads
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.placement import PlacementStatus, QueueState, QueueStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_independent import IndependentStatus
from convoy_crds.trainingjob_status import Phase, RoleStatus

FLAVORS: Mapping[str, Mapping[str, Any]] = {"plain": {"nodeLabels": {"pool": "plain"}}}


def queued(queue: str = "team", replicas: int = 2, least: int | None = None, **spec: Any) -> TrainingJob:
    """Return a job with a queue and one role `worker`."""
    role: dict[str, Any] = {"name": "worker", "replicas": replicas}
    role |= {"minReplicas": least} if least else {}
    job = make_job(roles=[role, *spec.pop("more", [])], **spec)
    job.metadata.labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    job.metadata.namespace = "default"
    return job


def pod(name: str, workload_name: str, **facts: Any) -> PodView:
    return PodView(
        name=name,
        uid=f"uid-{name}",
        phase=facts.pop("phase", "Running"),
        node="n",
        owner_uid=make_job().metadata.uid,
        annotations={"kueue.x-k8s.io/workload": workload_name} if workload_name else {},
        **facts,
    )


def see(job: TrainingJob, *stored: CachedObject, pods: Sequence[PodView] = (), **facts: Any) -> Observed:
    """Return the observation of a job with these Workloads."""
    served = facts.pop("served", frozenset({KUEUE_WORKLOADS}))
    priority, levels = facts.pop("priority", Priority()), facts.pop("levels", ())
    objects = QueueObjects(stored, facts.pop("flavors", FLAVORS), priority, levels)
    return Observed(
        job=job,
        engine=make_engine(),
        known_engines=("gpt",),
        pods=tuple(pods),
        agent_nodes=3,
        served=served,
        queue=objects,
        **facts,
    )


def name_of(job: TrainingJob, **facts: Any) -> str:
    """Return the name of the Workload that the job should have."""
    found = queueing.find(see(job, **facts))
    assert found is not None
    return found.workload


def of(made: Plan, kind: type[Any]) -> list[Any]:
    return [one for one in made.children if isinstance(one, kind)]


def pods_made(made: Plan) -> list[Mapping[str, Any]]:
    return [one.manifest for one in of(made, Create) if one.resource == PODS]


def run(observed: Observed) -> tuple[Plan, TrainingJob]:
    """Return the plan, and the job with the status that the plan stores."""
    made = plan(observed, NOW)
    job = observed.job
    if made.status is not None:
        job = TrainingJob.model_validate({**job.to_dict(), "status": made.status})
    return made, job


def reason(job: TrainingJob) -> tuple[Phase | None, str]:
    return job.status.phase, job.status.reason or ""


def test_a_job_first_asks_for_quota_and_makes_no_pods() -> None:
    job = queued()
    made, after = run(see(job))
    (apply,) = [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    assert apply.name == name_of(job)
    assert apply.manifest["spec"]["queueName"] == "team"
    assert apply.manifest["spec"]["podSets"][0]["count"] == 2
    assert not pods_made(made)
    assert reason(after) == (Phase.PENDING, "QueueWaiting")
    assert after.status.goodput.cause == "queue"
    assert after.status.internal.pending.since is None, "scheduleSeconds do not count"


def test_a_job_without_a_queue_has_no_workload() -> None:
    made, _ = run(see(queued("")))
    assert len(pods_made(made)) == 2
    assert not [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]


@pytest.mark.parametrize(
    ("stored", "wanted", "text"),
    [
        (workload(condition("QuotaReserved", "False", message="no room")), "QueueWaiting", "no room"),
        (workload(condition("QuotaReserved")), "QueueWaiting", "not complete"),
        (workload(condition("Finished", message="OutOfSync")), "QueueWaiting", "delete it"),
    ],
)
def test_kueues_own_words_are_shown(stored: CachedObject, wanted: str, text: str) -> None:
    job = queued()
    made, after = run(see(job, renamed(stored, name_of(job))))
    assert reason(after) == (Phase.PENDING, wanted)
    assert text in (after.status.message or "")
    assert not pods_made(made)


def renamed(stored: CachedObject, name: str) -> CachedObject:
    raw = {**stored.raw, "metadata": {**stored.raw["metadata"], "name": name}}
    return replace(stored, name=name, raw=raw)


def test_an_admitted_job_makes_pods_for_its_quota() -> None:
    job = queued()
    name = name_of(job)
    made, after = run(see(job, admitted(2, name=name)))
    found = pods_made(made)
    assert len(found) == 2
    for body in found:
        assert body["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == name
        assert body["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
        assert body["spec"]["nodeSelector"]["pool"] == "plain"
    assert after.status.placement is not None
    queue = after.status.placement.queue
    assert queue is not None
    assert (queue.state, queue.cluster_queue, queue.workload) == (QueueState.ADMITTED, "cq", name)


def test_partial_admission_limits_the_pods() -> None:
    job = queued(replicas=4, least=2)
    made, after = run(see(job, admitted(3, name=name_of(job))))
    assert len(pods_made(made)) == 3
    found = next(one for one in after.status.conditions if one.type == "Admitted")
    assert (found.status, found.reason) == ("True", "QueuePartial")


@pytest.mark.parametrize(
    ("flavors", "spec", "text"),
    [
        ({}, {}, "ResourceFlavor plain does not exist"),
        (FLAVORS, {"nodeSelector": {"pool": "other"}}, "'other' in the template and 'plain' in the queue"),
    ],
)
def test_a_pod_that_cannot_use_the_quota_holds_all_back(
    flavors: Mapping[str, Any], spec: Mapping[str, Any], text: str
) -> None:
    job = queued()
    if spec:
        template = {"spec": {"containers": [{"name": "w"}], **spec}}
        body = job.to_dict()
        body["spec"]["roles"][0]["template"] = template
        job = TrainingJob.model_validate(body)
    made, after = run(see(job, admitted(2, name=name_of(job)), flavors=flavors))
    assert not pods_made(made)
    assert reason(after) == (Phase.PENDING, "QueueConflict")
    assert text in (after.status.message or "")


def started(job: TrainingJob, phase: Phase = Phase.RUNNING) -> TrainingJob:
    job.status.phase = phase
    job.status.placement = PlacementStatus(queue=QueueStatus(name="team", state=QueueState.ADMITTED))
    return job


@pytest.mark.parametrize(
    ("stored", "wanted", "text", "state"),
    [
        (evicted("Preempted"), "QueueEvicted", "Preempted", QueueState.EVICTED),
        (evicted("DeactivatedDueToAdmissionCheck"), "QueueEvicted", "Deactivated", QueueState.EVICTED),
        (workload(condition("QuotaReserved", "False")), "QueueLost", "no quota", QueueState.WAITING),
    ],
)
def test_a_job_without_quota_ends_its_pods_with_their_grace(
    stored: CachedObject, wanted: str, text: str, state: QueueState
) -> None:
    job = started(queued())
    pods = [pod("job-worker-0", "w"), pod("job-worker-1", "w")]
    made, after = run(see(job, stored, pods=pods))
    assert {one.name for one in of(made, Delete) if one.resource == PODS} == {one.name for one in pods}
    assert reason(after) == (Phase.SUSPENDING, wanted)
    assert text in (after.status.message or "")
    assert "then waits in its queue" in (after.status.message or "")
    assert after.status.goodput.cause == "queue"
    assert after.status.placement is not None
    queue = after.status.placement.queue
    assert queue is not None
    assert (queue.state, queue.evictions) == (state, int(state is QueueState.EVICTED))
    cleared = [one for one in of(made, PatchStatus) if "admission" not in one.status and one.status]
    assert not [one for one in cleared if stored.status.get("admission")], "pods still use the quota"


def test_the_reservation_is_cleared_after_the_last_pod() -> None:
    job = started(queued(), Phase.SUSPENDING)
    name = name_of(job)
    stored = evicted("Preempted", name=name)
    made, after = run(see(job, stored, pods=[pod("job-worker-0", name)]))
    assert all("admission" in one.status for one in of(made, PatchStatus))
    made, after = run(see(after, stored))
    (patch,) = of(made, PatchStatus)
    assert (patch.name, patch.version) == (name, str(stored.version))
    assert "admission" not in patch.status
    assert condition_of({"status": patch.status}, "Requeued")["status"] == "True"
    assert reason(after) == (Phase.PENDING, "QueueWaiting")
    assert not pods_made(made)
    assert made.requeue_after == workloads.PATCH_SECONDS


def test_a_deactivated_job_keeps_its_reservation_until_kueue_evicts_it() -> None:
    job = queued()
    stored = admitted(2, name=name_of(job))
    raw = {**stored.raw, "spec": {**stored.raw["spec"], "active": False}}
    made, after = run(see(job, replace(stored, raw=raw)))
    assert not of(made, PatchStatus)
    assert not pods_made(made)
    assert reason(after)[1] == "QueueWaiting"


@pytest.mark.parametrize(("queue", "shown"), [("other", "LocalQueue other"), ("", "shape is none")])
def test_a_changed_queue_ends_the_pods_before_the_workload(queue: str, shown: str) -> None:
    job = started(queued(queue))
    stored = admitted(2)
    pods = [pod("job-worker-0", "w"), pod("job-worker-1", "w")]
    made, after = run(see(job, stored, pods=pods))
    assert reason(after)[1] == "QueueChanged"
    assert shown in (after.status.message or "")
    assert not [one for one in of(made, Delete) if one.resource == KUEUE_WORKLOADS]
    assert not [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    made, _ = run(see(after, stored))
    assert [one.name for one in of(made, Delete) if one.resource == KUEUE_WORKLOADS] == ["w"]
    assert bool([one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]) is bool(queue)


def test_a_job_that_has_started_keeps_a_workload_of_an_earlier_release() -> None:
    job = started(queued())
    pods = [pod("job-worker-0", "w"), pod("job-worker-1", "w")]
    made, after = run(see(job, admitted(2, name="w"), pods=pods))
    assert after.status.phase is not Phase.SUSPENDING
    assert not [one for one in of(made, (Apply, Delete)) if one.resource == KUEUE_WORKLOADS]


def test_a_job_that_ran_before_queues_were_known_goes_on_until_its_next_start() -> None:
    job = queued()
    job.status.phase, job.status.placement = Phase.RUNNING, None
    running = see(job, pods=[pod("job-worker-0", ""), pod("job-worker-1", "")])
    assert queueing.stop(running) is None and queueing.find(running) is None
    assert queueing.find(see(job)) is not None


def test_a_missing_workload_is_applied_again_and_ends_nothing() -> None:
    job = started(queued())
    name = name_of(job)
    made, after = run(see(job, pods=[pod("job-worker-0", name), pod("job-worker-1", name)]))
    assert after.status.phase is not Phase.SUSPENDING
    assert [one.name for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS] == [name]


@pytest.mark.parametrize("running", [True, False])
def test_without_kueue_running_jobs_go_on_and_others_wait(running: bool) -> None:
    job = started(queued()) if running else queued()
    pods = [pod("job-worker-0", "w"), pod("job-worker-1", "w")] if running else []
    made, after = run(see(job, pods=pods, served=frozenset()))
    assert not pods_made(made)
    if running:
        assert after.status.phase is not Phase.SUSPENDING
    else:
        assert reason(after) == (Phase.PENDING, "QueueMissing")
        assert made.requeue_after == queueing.UNSERVED_SECONDS


def test_a_suspended_job_deletes_its_workload_after_its_pods() -> None:
    job = queued(suspend=True)
    stored = admitted(2)
    made, after = run(see(job, stored, pods=[pod("job-worker-0", "w")]))
    assert not [one for one in of(made, Delete) if one.resource == KUEUE_WORKLOADS]
    made, _ = run(see(after, stored))
    assert [one.name for one in of(made, Delete)] == ["w"]


@pytest.mark.parametrize(("phase", "wanted"), [(Phase.SUCCEEDED, "Succeeded"), (Phase.FAILED, "Failed")])
def test_the_end_of_a_job_frees_its_quota_after_its_pods(phase: Phase, wanted: str) -> None:
    job = queued()
    job.status.phase, job.status.completion_time = phase, NOW
    stored = admitted(2)
    made, _ = run(see(job, stored, pods=[pod("job-worker-0", "w")]))
    assert not of(made, PatchStatus)
    made, _ = run(see(job, stored, pods=[pod("job-worker-0", "w", phase="Succeeded")]))
    (patch,) = of(made, PatchStatus)
    assert condition_of({"status": patch.status}, "Finished")["reason"] == wanted
    assert not [one for one in of(made, Delete) if one.resource == KUEUE_WORKLOADS], "it stays for its user"


def test_problems_of_the_workload_are_shown() -> None:
    job = queued()
    name = name_of(job)
    _, after = run(see(job, create_errors={name: Refusal("quota name is wrong")}))
    assert reason(after)[1] == "QueueRefused"
    assert "quota name is wrong" in (after.status.message or "")
    made, after = run(see(job, priority=Priority(unknown="nobody")))
    assert reason(after)[1] == "QueuePriorityMissing"
    assert not [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]


def test_a_wrong_time_of_the_queue_is_shown_and_asks_for_nothing() -> None:
    job = queued()
    job.metadata.labels["kueue.x-k8s.io/max-exec-time-seconds"] = "1h"
    made, after = run(see(job))
    assert reason(after) == (Phase.PENDING, "QueueWaiting")
    assert "max-exec-time-seconds is '1h'" in (after.status.message or "")
    assert not [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    job.metadata.labels["kueue.x-k8s.io/max-exec-time-seconds"] = "60"
    made, _ = run(see(job))
    (apply,) = [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    assert apply.manifest["spec"]["maximumExecutionTimeSeconds"] == 60


def test_the_time_of_a_job_with_quota_stays() -> None:
    """The API server refuses another time, and with it all other changes of the Workload."""
    job = queued()
    job.metadata.labels["kueue.x-k8s.io/max-exec-time-seconds"] = "60"
    stored = admitted(2, name=name_of(job))
    made, _ = run(see(job, stored))
    (apply,) = [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    assert "maximumExecutionTimeSeconds" not in apply.manifest["spec"]
    stored.raw["spec"]["maximumExecutionTimeSeconds"] = 30
    made, _ = run(see(job, stored))
    (apply,) = [one for one in of(made, Apply) if one.resource == KUEUE_WORKLOADS]
    assert apply.manifest["spec"]["maximumExecutionTimeSeconds"] == 30


def test_a_pod_that_kueue_queues_itself_is_named() -> None:
    job = queued("")
    captured = replace(pod("job-worker-0", ""), gated=True, labels={"kueue.x-k8s.io/managed": "true"})
    _, after = run(see(job, pods=[captured]))
    found = next(one for one in after.status.conditions if one.type == "Admitted")
    assert found.reason == Reasons.QUEUE_CAPTURED.name
    assert "job-worker-0" in found.message
    assert "externalFrameworks" in found.message


def test_independent_pods_that_are_over_give_their_quota_back() -> None:
    outside = {"name": "rollout", "replicas": 3, "membership": "Independent"}
    job = started(queued(more=[outside]))
    counts = IndependentStatus(completed=1, given_up=1)
    job.status.roles = [RoleStatus(name="rollout", desired=3, independent=counts)]
    stored = admitted(2, name="w")
    raw = {**stored.raw}
    raw["status"] = {**stored.status}
    sets = [{"name": "worker", "count": 2}, {"name": "rollout", "count": 3}]
    raw["status"]["admission"] = {"clusterQueue": "cq", "podSetAssignments": sets}
    observed = see(job, replace(stored, raw=raw), pods=[pod("job-worker-0", "w")])
    patches = [one for one in workloads.children(observed, NOW) if isinstance(one, PatchStatus)]
    assert [one.status["reclaimablePods"] for one in patches] == [[{"name": "rollout", "count": 2}]]


PLACES = {
    "levels": ["kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 1},
        }
    ],
}


def test_the_queue_chooses_the_places_and_convoy_pins_nothing() -> None:
    job = queued(placement={"topologyKeys": ["rack"], "pack": "Required"})
    stored = admitted(2, name=name_of(job), topologyAssignment=PLACES)
    made, _ = run(see(job, stored))
    found = pods_made(made)
    assert [one["spec"]["nodeSelector"]["kubernetes.io/hostname"] for one in found] == ["n1", "n2"]
    assert all("affinity" not in one["spec"] for one in found)


def test_no_pod_starts_on_a_failed_node_of_the_queue() -> None:
    job = queued()
    stored = admitted(2, name=name_of(job), topologyAssignment=PLACES)
    raw = {**stored.raw, "status": {**stored.status, "unhealthyNodes": [{"name": "n2"}]}}
    made, after = run(see(job, replace(stored, raw=raw)))
    assert not pods_made(made)
    assert reason(after)[1] == "QueuePlaces"
    assert "n2" in (after.status.message or "")


@pytest.mark.parametrize(("domain", "restarts"), [("n2", 0), ("", 1)])
def test_a_pod_that_kueue_ends_before_it_has_a_node_is_no_fault(domain: str, restarts: int) -> None:
    job = queued()
    name = name_of(job)
    ended = pod("job-worker-1", name, phase="Failed")
    notes = {**ended.annotations, **({"convoy.dev/queue-domain": domain} if domain else {})}
    pods = [pod("job-worker-0", name), replace(ended, node=None, annotations=notes)]
    made, after = run(see(job, admitted(2, name=name), pods=pods))
    assert after.status.restarts.total == restarts
    assert "job-worker-1" in {one.name for one in of(made, Delete)}, "it is replaced in any case"


@pytest.mark.parametrize(
    ("levels", "wanted"), [(("rack",), {"preferred": "rack"}), (("zone",), None), ((), None)]
)
def test_only_a_topology_of_the_queue_is_asked_for(levels: tuple[str, ...], wanted: Any) -> None:
    job = queued(placement={"topologyKeys": ["rack"]})
    (found,) = queueing.pod_sets(see(job, levels=levels))
    assert found.body(partial=False).get("topologyRequest") == wanted
