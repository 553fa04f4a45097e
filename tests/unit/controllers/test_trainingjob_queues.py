"""Tests of jobs behind a queue. At any moment the queue may suspend a job and restore its template, or
admit the job with another template.

The updates are those of Kueue's job framework. An admission sets `suspend: false` with the flavor's node
selector, tolerations, labels and counts. An eviction restores the template and sets `suspend: true`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

STEP_SECONDS = 0.1
GRACE_SECONDS = 20
BOUND_SECONDS = 300.0
"""Maximum virtual seconds in which a job must reach the expected phase."""


def roles(flavor: str = "", replicas: int = 3) -> list[dict[str, Any]]:
    """Return the job's roles as a queue writes them for a flavor. Without a flavor, return them as the user
    wrote them.
    """
    template: dict[str, Any] = {"spec": {"terminationGracePeriodSeconds": GRACE_SECONDS}}
    if flavor:
        template["spec"] |= {
            "nodeSelector": {"flavor": flavor},
            "tolerations": [{"key": flavor, "operator": "Exists"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
        }
        template["metadata"] = {
            "labels": {"kueue.x-k8s.io/podset": "worker"},
            "annotations": {"kueue.x-k8s.io/workload": "job"},
        }
    return [{"name": "worker", "replicas": replicas, "minReplicas": 1, "template": template}]


class Queued:
    """A job on a simulated cluster, behind a queue.

    It checks two invariants: pods of two templates never exist at the same time, and every pod whose ranks
    ran gets its own grace period, in which the ranks save their state.
    """

    def __init__(self, **spec: Any) -> None:
        machines = [Machine(f"node-{number}") for number in range(4)]
        self.cluster = Cluster(machines, latencies=Latencies(), engines=[make_engine()])
        self.faults = Faults(self.cluster)
        InvariantChecker(self.cluster)
        self.cluster.api.listeners.append(self._judge)
        self.cluster.operator.lead()
        program = Program(total_steps=100_000, step_seconds=STEP_SECONDS)
        body = {
            "suspend": True,
            "roles": roles(),
            "checkpoint": {"interval": "10m", "tiers": {"local": {}}},
            **spec,
        }
        made = make_job(**body)
        made.metadata.uid = ""
        self.cluster.submit(made, program)

    @property
    def job(self) -> TrainingJob:
        return self.cluster.job("job")

    @property
    def flavors(self) -> list[str]:
        """Return the flavors of the existing pods."""
        api = self.cluster.api
        return [api.specs[pod.uid]["nodeSelector"].get("flavor", "") for pod in api.pods.values()]

    def _judge(self, kind: str, name: str) -> None:
        assert len(set(self.flavors)) <= 1, f"pods of two templates: {self.flavors}"
        pod = self.cluster.api.pods.get(name) if kind == "pods" else None
        slot = self.cluster.workers.slots.get(pod.uid) if pod else None
        if pod is not None and pod.deleting and slot is not None and slot.ranks:
            assert pod.leaves_by - pod.leaving_since == GRACE_SECONDS, f"{name} has no time to save its state"

    def until(self, reached: Callable[[TrainingJob], bool]) -> Queued:
        limit = self.cluster.kernel.now + BOUND_SECONDS
        while not reached(self.job):
            assert self.cluster.kernel.now < limit, self.job.status
            self.cluster.run(0.05)
        return self

    def phase(self, phase: Phase) -> Queued:
        return self.until(lambda job: job.status.phase is phase)

    def admit(self, flavor: str, replicas: int = 3) -> Queued:
        self.faults.edit("job", suspend=False, roles=roles(flavor, replicas))
        return self

    def evict(self) -> Queued:
        self.faults.edit("job", suspend=True, roles=roles())
        return self

    def trained(self, step: int) -> Queued:
        return self.until(lambda job: (job.status.progress is not None) and job.status.progress.step >= step)

    def runs(self, flavor: str, replicas: int = 3) -> None:
        """Wait until the job runs, and check that all its pods have this flavor."""
        self.until(lambda job: job.status.observed_generation == job.metadata.generation)
        self.phase(Phase.RUNNING).until(lambda job: job.status.ready == f"{replicas}/{replicas}")
        assert self.flavors == [flavor] * replicas


def pending(queued: Queued) -> None:
    queued.cluster.scheduler.open = False
    queued.admit("a").phase(Phase.PENDING).until(lambda job: len(queued.cluster.api.pods) == 3)


def starting(queued: Queued) -> None:
    queued.admit("a").phase(Phase.STARTING)


def running(queued: Queued) -> None:
    queued.admit("a").phase(Phase.RUNNING).trained(20)


def restarting(queued: Queued) -> None:
    running(queued)
    queued.faults.delete_pod("job-worker-1")
    queued.phase(Phase.RESTARTING)


def suspending(queued: Queued) -> None:
    running(queued)
    queued.evict().phase(Phase.SUSPENDING)


def held(queued: Queued) -> None:
    suspending(queued)
    queued.phase(Phase.SUSPENDED)


MOMENTS = [pending, starting, running, restarting, suspending, held]


@pytest.mark.parametrize("replicas", [3, 2, 4])
@pytest.mark.parametrize("moment", MOMENTS)
def test_evicted_job_runs_with_its_new_admission(moment: Callable[[Queued], None], replicas: int) -> None:
    queued = Queued().phase(Phase.SUSPENDED)
    moment(queued)
    queued.cluster.scheduler.open = True
    queued.evict().phase(Phase.SUSPENDED)
    assert not queued.cluster.api.pods and queued.job.status.start_time is None
    queued.admit("b", replicas).runs("b", replicas)


@pytest.mark.parametrize("replicas", [3, 2, 4])
@pytest.mark.parametrize("moment", [starting, running, restarting, suspending])
def test_job_admitted_before_its_pods_stopped_is_suspended_first(
    moment: Callable[[Queued], None], replicas: int
) -> None:
    queued = Queued().phase(Phase.SUSPENDED)
    moment(queued)
    queued.evict().phase(Phase.SUSPENDING).admit("b", replicas).runs("b", replicas)


@pytest.mark.parametrize("replicas", [3, 2, 4])
@pytest.mark.parametrize("moment", [pending, starting, running, restarting])
def test_unobserved_suspension_is_completed(moment: Callable[[Queued], None], replicas: int) -> None:
    queued = Queued().phase(Phase.SUSPENDED)
    moment(queued)
    queued.cluster.scheduler.open = True
    queued.faults.edit("job", suspend=True, roles=roles("b", replicas))
    queued.faults.edit("job", suspend=False)
    queued.runs("b", replicas)


def test_repeated_evictions_change_nothing() -> None:
    queued = Queued().phase(Phase.SUSPENDED)
    running(queued)
    for _ in range(3):
        queued.evict().cluster.run(0.3)
    queued.phase(Phase.SUSPENDED).evict().cluster.run(5)
    assert queued.job.status.phase is Phase.SUSPENDED and not queued.cluster.api.pods
    queued.admit("a").runs("a")


def test_finished_job_ignores_its_queue() -> None:
    queued = Queued(roles=roles()).phase(Phase.SUSPENDED)
    running(queued)
    for rank in range(3):
        queued.faults.end_rank("job", rank, 0)
    queued.until(lambda job: job.status.phase in TERMINAL)
    ended = queued.job.status
    queued.evict().cluster.run(60)
    queued.faults.edit("job", suspend=False)
    queued.cluster.run(60)
    assert queued.job.status == ended


def test_unobserved_suspend_and_resume_keeps_the_pods() -> None:
    queued = Queued().phase(Phase.SUSPENDED)
    running(queued)
    uids = {pod.uid for pod in queued.cluster.api.pods.values()}
    queued.faults.edit("job", suspend=True)
    queued.faults.edit("job", suspend=False)
    queued.cluster.run(30)
    assert {pod.uid for pod in queued.cluster.api.pods.values()} == uids
    assert queued.job.status.incarnation == 1 and queued.job.status.phase is Phase.RUNNING


def toy(**spec: Any) -> ToyCluster:
    job = make_job(roles=roles(), checkpoint={"tiers": {"local": {}}}, **spec)
    return ToyCluster(job, make_engine()).settle().train(5).settle()


def leave(cluster: ToyCluster) -> None:
    """Suspend the job, and return while its pods are being deleted and its ranks save."""
    cluster.spec(suspend=True).step(effects=0)
    for name in cluster.pods:
        cluster.pod(name, deleting=True)
    cluster.step()


def test_pods_beyond_the_restored_layout_save_their_state_too() -> None:
    cluster = toy()
    cluster.spec(suspend=True, roles=roles("", 1)).step()
    graces = {deletion.name: deletion.grace_seconds for deletion in cluster.plans[-1].deletions}
    assert graces == {"job-worker-0": None, "job-worker-1": None, "job-worker-2": None}


def test_message_of_a_suspending_job_mentions_its_resume() -> None:
    cluster = toy()
    leave(cluster)
    cluster.spec(suspend=False, roles=roles("b")).step()
    status = cluster.job.status
    assert (status.phase, status.reason) == (Phase.SUSPENDING, "Suspending")
    assert (
        status.message == "waiting for 3 pods to stop; the ranks save their state; the job resumes afterwards"
    )
    assert not cluster.plans[-1].manifests
    for name in list(cluster.pods):
        cluster.lose(name)
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING and "Suspended" not in cluster.condition


def test_missing_layout_of_an_earlier_operator_stops_no_pod() -> None:
    cluster = toy()
    status = cluster.job.status
    status.internal.layout = ""
    uids = cluster.uids
    cluster.settle().wait(60).settle()
    assert cluster.uids == uids and cluster.job.status.phase is Phase.RUNNING


def test_ended_suspended_pod_is_removed_despite_an_absent_agent() -> None:
    cluster = toy()
    node = cluster.pods["job-worker-1"].node
    assert node is not None
    leave(cluster)
    cluster.silence(node, 31.0, pods_reachable=True, agent_ready=False).step()
    assert not cluster.plans[-1].deletions, "its ranks may still save"
    assert cluster.plans[-1].requeue_after == pytest.approx(5)
    cluster.pod("job-worker-1", phase="Failed", exit_code=143).step()
    assert [(deletion.name, deletion.grace_seconds) for deletion in cluster.plans[-1].deletions] == [
        ("job-worker-1", 0)
    ]


def test_elastic_job_waits_for_pods_with_a_scheduling_gate() -> None:
    """The scheduler finds no node for one pod. While Kueue's scheduling gate holds the pod back, an elastic
    job waits for it. Without the gate, the job runs without it.
    """
    job = make_job(roles=roles())
    for held, phase in (({"gated": True}, Phase.PENDING), ({}, Phase.RUNNING)):
        cluster = ToyCluster(job, make_engine())
        cluster.launchers = False
        cluster.step()
        cluster.pod("job-worker-2", node=None, phase="Pending", unschedulable="no node yet", **held)
        for name in ("job-worker-0", "job-worker-1"):
            cluster.connect(name)
        assert cluster.settle().job.status.phase is phase
