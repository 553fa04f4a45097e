"""Tests of pods that do not start: the cause in the job's message, and the number of further attempts."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.plan import Inspect
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import ContainerEnd, PodWarning
from convoy_crds.trainingjob_status import Phase

FETCH = ContainerEnd("fetch-data", 42, "Error", "fetch: no such bucket: traning-data\n")
MISSING = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "s" : configmap "scritps" not found')


def starting(**spec: Any) -> ToyCluster:
    """Return a job whose pods have nodes, but whose launchers are not connected to their agents."""
    cluster = ToyCluster(make_job(**spec), make_engine())
    cluster.launchers = False
    cluster.step()
    return cluster


def message(cluster: ToyCluster, kind: str = "Running") -> str:
    return next(one.message for one in cluster.job.status.conditions if one.type == kind)


@pytest.mark.parametrize(
    ("limits", "reason", "tries"),
    [
        ({"maxIdenticalErrors": 3, "maxRestarts": 10}, "RepeatedError", 3),
        ({"maxIdenticalErrors": 0, "maxRestarts": 3}, "MaxRestartsExceeded", 4),
    ],
)
def test_repeated_failure_of_an_init_container_fails_the_job(
    limits: dict[str, int], reason: str, tries: int
) -> None:
    cluster = starting(recovery=limits)
    for _ in range(20):
        pod = cluster.pods.get("job-worker-1")
        if pod is None:
            cluster.wait(61).settle()
            continue
        cluster.pod("job-worker-1", phase="Failed", failure=FETCH).settle()
        if cluster.job.status.phase is Phase.FAILED:
            break
        last = cluster.job.status.restarts.last
        assert last is not None and "no such bucket" in last.message, "its words outlive the pod"
        cluster.wait(61).settle()
    status = cluster.job.status
    assert (status.phase, status.reason, status.restarts.total) == (Phase.FAILED, reason, tries - 1)
    assert "fetch-data" in message(cluster, "Failed") and "no such bucket" in message(cluster, "Failed")
    assert status.offenders == []


def test_pods_that_exit_with_0_before_their_ranks_start_fail_the_job() -> None:
    cluster = starting(recovery={"maxRestarts": 2})
    for _ in range(12):
        if "job-worker-0" in cluster.pods:
            cluster.pod("job-worker-0", phase="Succeeded", exit_code=0, container="worker")
        cluster.settle().wait(61)
    status = cluster.job.status
    assert (status.phase, status.reason, status.restarts.total) == (Phase.FAILED, "MaxRestartsExceeded", 2)
    assert "exited with code 0 before any rank started" in message(cluster, "Failed")
    assert status.offenders == []


def test_newest_event_of_a_late_pod_is_shown_until_after_the_deadline() -> None:
    cluster = starting(recovery={"scheduleSeconds": 40})
    assert cluster.plans[-1].inspect is None, "it is not late yet"
    cluster.wait(6).settle()
    assert cluster.plans[-1].inspect in [Inspect(pod.name, pod.uid) for pod in cluster.pods.values()]
    cluster.warnings = {cluster.uids[1]: MISSING}
    cluster.settle()
    assert cluster.job.status.reason == "PodNotStarting"
    for words in ("job-worker-1", "FailedMount", "scritps", "kubectl describe pod"):
        assert words in message(cluster)
    cluster.wait(40).settle()
    assert cluster.job.status.reason == "ScheduleDeadline" and "scritps" in message(cluster)
    cluster.warnings = {}
    cluster.wait(42).settle()
    assert (cluster.job.status.reason, len(cluster.pods)) == ("ScheduleRetry", 2), (
        "another try, with no Event yet"
    )
    assert "scritps" in message(cluster) and "scritps" in cluster.job.status.internal.pending.cause
    cluster.wait(40).settle()
    assert cluster.job.status.reason == "ScheduleDeadline" and "scritps" in message(cluster)
    cluster.launchers = True
    cluster.wait(42).settle()
    assert (cluster.job.status.phase, cluster.job.status.internal.pending.cause) == (Phase.RUNNING, "")
    assert cluster.plans[-1].inspect is None


def test_late_pods_are_inspected_in_rotation() -> None:
    cluster = starting(roles=[{"name": "worker", "replicas": 4}])
    cluster.connect("job-worker-0")
    inspected = set()
    for _ in range(12):
        cluster.wait(20).step()
        made = cluster.plans[-1].inspect
        assert made is not None
        inspected.add(made.name)
    assert inspected == {"job-worker-1", "job-worker-2", "job-worker-3"}


@pytest.mark.parametrize(
    ("facts", "inspected", "reason", "words"),
    [
        pytest.param(
            {"waiting_reason": "CreateContainerConfigError", "waiting_message": 'secret "wandb" not found'},
            False,
            "ContainerConfigError",
            ["container worker", 'secret "wandb" not found'],
            id="its status tells",
        ),
        pytest.param(
            {
                "waiting_reason": "CrashLoopBackOff",
                "waiting_container": "istio-proxy",
                "failure": ContainerEnd("istio-proxy", 1, "Error", "no config"),
            },
            False,
            "ContainerFailing",
            ["istio-proxy exited with code 1", "no config", "-c istio-proxy --previous"],
            id="a native sidecar that crashes",
        ),
        pytest.param(
            {"waiting_reason": "PodInitializing", "waiting_container": "wait-for-db"},
            True,
            "StartingPods",
            ["container wait-for-db: PodInitializing"],
            id="an init container that takes its time",
        ),
        pytest.param(
            {"waiting_reason": "ImagePullBackOff", "waiting_container": "mesh", "image": "mesh:1"},
            False,
            "ImagePullFailed",
            ["'mesh:1'"],
            id="the image of a sidecar",
        ),
        pytest.param(
            {"node": None, "unschedulable": "its scheduling gates are not removed yet: a"},
            True,
            "Unschedulable",
            ["gates are not removed yet: a", "check the controller that sets this scheduling gate"],
            id="gated",
        ),
        pytest.param(
            {
                "node": None,
                "unschedulable": "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
            },
            True,
            "Unschedulable",
            ["volume node affinity", "the nodes that can use its volume are full"],
            id="a volume elsewhere",
        ),
        pytest.param(
            {"node": None, "scheduler": "volcano"},
            True,
            "WaitingForPods",
            ["0 of 1 pods are scheduled; pod job-worker-0 waits for scheduler 'volcano'"],
            id="a scheduler that has not said anything",
        ),
    ],
)
def test_message_explains_a_pod_that_does_not_start(
    facts: dict[str, Any], inspected: bool, reason: str, words: list[str]
) -> None:
    cluster = starting(roles=[{"name": "worker", "replicas": 1}])
    cluster.pod("job-worker-0", phase="Pending", container="worker", **facts).wait(6).settle()
    assert cluster.job.status.reason == reason
    assert all(word in message(cluster) for word in words), message(cluster)
    assert (cluster.plans[-1].inspect is not None) is inspected


def test_message_of_the_autoscaler_is_added_to_that_of_the_scheduler() -> None:
    cluster = starting(roles=[{"name": "worker", "replicas": 1}])
    cluster.pod("job-worker-0", node=None, unschedulable="0/3 nodes are available: 3 Insufficient cpu.")
    cluster.warnings = {cluster.uids[0]: PodWarning("NotTriggerScaleUp", "1 max node group size reached")}
    cluster.settle()
    assert "Insufficient cpu" in message(cluster) and "max node group size" in message(cluster)


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ('pods "p" is forbidden: exceeded quota: team, requested: cpu=2', "ResourceQuota"),
        ("maximum memory usage per Container is 1Gi, but limit is 2Gi", "LimitRange"),
        ("no PriorityClass with name high was found", "correct its name"),
        ('admission webhook "x.example.com" denied the request: no', "the owner of that webhook or policy"),
        ('failed calling webhook "x.example.com": EOF', "ask its owner; Convoy tries again"),
        ("a pod of that name exists and is not this job's", "another name than 'worker' also helps"),
        ('violates PodSecurity "restricted:latest"', "correct spec.roles[worker].template"),
    ],
)
def test_message_on_a_rejected_pod_contains_advice(why: str, advice: str) -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.create_errors = {"job-worker-0": why}
    cluster.settle()
    assert cluster.job.status.reason == "PodRejected"
    assert why in message(cluster) and advice in message(cluster)
