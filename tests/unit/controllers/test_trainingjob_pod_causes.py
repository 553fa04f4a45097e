"""Why pods do not come up or end: who is at fault, what the user is told, and how often it is tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.children import EndPod
from convoy_controllers.plan import Inspect, Plan
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.faults import pod_fault
from convoy_controllers.trainingjob.finished import BESIDE_SECONDS, LET_GO_SECONDS
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import ContainerEnd, NodeView, PodView, PodWarning, RankView
from convoy_crds.trainingjob_status import Phase

FETCH = ContainerEnd("fetch-data", 42, "Error", "fetch: no such bucket: traning-data\n")
MISSING = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "s" : configmap "scritps" not found')
PROBES = ("livenessProbe",)


def failed_pod(**facts: Any) -> PodView:
    return PodView(
        **{"name": "p", "uid": "u", "phase": "Failed", "node": "n", "container": "worker", **facts}
    )


@pytest.mark.parametrize(
    ("facts", "reason", "words", "blames"),
    [
        pytest.param(
            {"failure": FETCH},
            "InitContainerFailed",
            ["fetch-data", "code 42", "no such bucket: traning-data", "kubectl logs p -c fetch-data"],
            False,
            id="init container",
        ),
        pytest.param(
            {"failure": ContainerEnd("fetch", 137, "OOMKilled")},
            "InitContainerFailed",
            ["fetch ran out of memory"],
            False,
            id="init container without memory",
        ),
        pytest.param(
            {"exit_code": 2, "termination_reason": "Error", "termination_message": "SyntaxError: x"},
            "ContainerFailed",
            ["container worker exited with code 2", "SyntaxError: x", "kubectl logs p -c worker"],
            False,
            id="the launcher cannot run in this image",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": 'exec: "python3": not',
            },
            "NoPythonInImage",
            ["python3"],
            False,
            id="no Python",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": "mkdir /x: read-only",
            },
            "ContainerFailed",
            ["StartError", "mkdir /x: read-only"],
            False,
            id="a working directory that cannot be made",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": "nvidia-container-cli",
            },
            "PodLost",
            ["nvidia"],
            True,
            id="a device that the node cannot give",
        ),
        pytest.param(
            {
                "exit_code": 1,
                "termination_reason": "Error",
                "termination_message": "CUDA error: device-side assert triggered",
            },
            "ContainerFailed",
            ["device-side assert"],
            False,
            id="an error of the program's own that names a device",
        ),
        pytest.param(
            {
                "exit_code": 1,
                "termination_reason": "Error",
                "termination_message": "OSError: [Errno 28] No space left on device: '/data/out'",
            },
            "ContainerFailed",
            ["No space left"],
            False,
            id="a volume of the program's that is full",
        ),
        pytest.param(
            {
                "exit_code": 255,
                "termination_reason": "Error",
                "termination_message": "exec /usr/bin/python3: exec format error",
            },
            "ContainerFailed",
            ["exec format error"],
            False,
            id="an image for another architecture",
        ),
        pytest.param(
            {
                "exit_code": 2,
                "termination_message": "can't open file '/x/convoy_launch.py': [Errno 2] No such file",
            },
            "PodLost",
            ["convoy_launch.py"],
            True,
            id="the agent's volume is empty",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "ContainerStatusUnknown"},
            "PodLost",
            ["ContainerStatusUnknown"],
            True,
            id="the node has lost it",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "Error"},
            "PodLost",
            ["137"],
            True,
            id="killed from outside",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "OOMKilled"},
            "ContainerOutOfMemory",
            ["memory"],
            False,
            id="out of memory",
        ),
        pytest.param(
            {"exit_code": 143, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerStopped",
            ["livenessProbe of the template", "Unhealthy: probe failed: 500"],
            False,
            id="a probe of the user's that fails",
        ),
        pytest.param(
            {"exit_code": 75, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerStopped",
            ["livenessProbe"],
            False,
            id="and its ranks saved their state",
        ),
        pytest.param(
            {"exit_code": 1, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerFailed",
            ["code 1"],
            False,
            id="an error of its own beside a probe",
        ),
        pytest.param(
            {
                "exit_code": 143,
                "kubelet_reason": "DeadlineExceeded",
                "kubelet_message": "Pod was active on the",
            },
            "PodDeadlineExceeded",
            ["spec.activeDeadlineSeconds of its template"],
            False,
            id="its own deadline",
        ),
        pytest.param(
            {"exit_code": 0, "kubelet_reason": "DeadlineExceeded"},
            "PodDeadlineExceeded",
            [],
            False,
            id="its own deadline, and ranks that end well when asked to",
        ),
        pytest.param(
            {
                "exit_code": 137,
                "kubelet_reason": "Evicted",
                "kubelet_message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Mi".',
            },
            "StorageLimitExceeded",
            ['EmptyDir volume "tmp"'],
            False,
            id="a full volume",
        ),
        pytest.param(
            {
                "kubelet_reason": "Evicted",
                "kubelet_message": "Pod ephemeral local storage usage exceeds the total limit of 1Gi.",
            },
            "StorageLimitExceeded",
            ["ephemeral local storage"],
            False,
            id="too much written, evicted without a status of its containers",
        ),
        pytest.param(
            {
                "exit_code": 137,
                "kubelet_reason": "Evicted",
                "kubelet_message": "The node was low on resource: ephemeral-storage.",
                "disruption": "TerminationByKubelet",
            },
            "PodEvicted",
            ["The node was low on resource: ephemeral-storage."],
            False,
            id="evicted for its node's sake",
        ),
        pytest.param(
            {"kubelet_reason": "Evicted", "kubelet_message": "The node had condition: [DiskPressure]. "},
            "PodEvicted",
            ["DiskPressure"],
            False,
            id="so by a kubelet that sets no condition",
        ),
        pytest.param(
            {
                "kubelet_reason": "UnexpectedAdmissionError",
                "kubelet_message": "Allocate failed due to no gpu",
            },
            "PodNotAdmitted",
            ["UnexpectedAdmissionError: Allocate failed"],
            True,
            id="not admitted, for something of the node's",
        ),
        pytest.param(
            {
                "kubelet_reason": "SysctlForbidden",
                "kubelet_message": 'forbidden sysctl: "kernel.x"',
            },
            "PodUnfit",
            ["kernel.x"],
            False,
            id="not admitted, for something of the template's",
        ),
        pytest.param({}, "PodNotAdmitted", ["does not say why"], True, id="nobody says why"),
    ],
)
def test_who_is_at_fault(facts: dict[str, Any], reason: str, words: list[str], blames: bool) -> None:
    found = pod_fault(failed_pod(**facts), NodeView("n"), PodWarning("Unhealthy", "probe failed: 500"))
    assert found is not None and found.reason.name == reason
    assert found.policy.blames_node is blames
    assert all(word in found.message for word in words), found.message


def test_an_event_from_before_the_pod_was_up_does_not_say_why_it_was_stopped() -> None:
    pod = failed_pod(exit_code=143, stoppers=PROBES)
    found = pod_fault(pod, NodeView("n"), MISSING)
    assert found is not None and "scritps" not in found.message and "livenessProbe" in found.message


@pytest.mark.parametrize(
    "facts",
    [
        {"phase": "Running", "exit_code": 0},
        {"phase": "Failed", "exit_code": 0, "termination_reason": "Completed"},
        {"phase": "Succeeded", "exit_code": 0},
        {"phase": "Running", "failure": ContainerEnd("proxy", 1)},
    ],
    ids=["a sidecar goes on", "a sidecar has crashed", "all ended well", "a native sidecar crashes"],
)
def test_what_sidecars_do_is_no_fault(facts: dict[str, Any]) -> None:
    assert pod_fault(failed_pod(**facts), NodeView("n")) is None


def starting(**spec: Any) -> ToyCluster:
    """A job whose pods have nodes, and whose launchers do not meet their agents."""
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
def test_an_init_container_that_fails_again_and_again_fails_the_job(
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


def test_pods_that_end_well_before_their_ranks_begin_are_not_made_without_end() -> None:
    cluster = starting(recovery={"maxRestarts": 2})
    for _ in range(12):
        if "job-worker-0" in cluster.pods:
            cluster.pod("job-worker-0", phase="Succeeded", exit_code=0, container="worker")
        cluster.settle().wait(61)
    status = cluster.job.status
    assert (status.phase, status.reason, status.restarts.total) == (Phase.FAILED, "MaxRestartsExceeded", 2)
    assert "ended with code 0 before any rank began" in message(cluster, "Failed")
    assert status.offenders == []


def test_the_newest_event_of_a_late_pod_is_told_and_stands_through_the_deadline() -> None:
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
    assert "scritps" in message(cluster) and "scritps" in cluster.job.status.pending_cause
    cluster.wait(40).settle()
    assert cluster.job.status.reason == "ScheduleDeadline" and "scritps" in message(cluster)
    cluster.launchers = True
    cluster.wait(42).settle()
    assert (cluster.job.status.phase, cluster.job.status.pending_cause) == (Phase.RUNNING, "")
    assert cluster.plans[-1].inspect is None


def test_pods_take_turns_at_being_asked_about() -> None:
    cluster = starting(roles=[{"name": "worker", "replicas": 4}])
    cluster.connect("job-worker-0")
    asked = set()
    for _ in range(12):
        cluster.wait(20).step()
        made = cluster.plans[-1].inspect
        assert made is not None
        asked.add(made.name)
    assert asked == {"job-worker-1", "job-worker-2", "job-worker-3"}


@pytest.mark.parametrize(
    ("facts", "asked", "reason", "words"),
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
            ["PodInitializing, by container wait-for-db"],
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
            {"node": None, "unschedulable": "its scheduling gates are not taken off: a"},
            True,
            "Unschedulable",
            ["gates are not taken off: a", "see the controller that gates"],
            id="gated",
        ),
        pytest.param(
            {
                "node": None,
                "unschedulable": "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
            },
            True,
            "Unschedulable",
            ["volume node affinity", "its volume is for nodes"],
            id="a volume elsewhere",
        ),
        pytest.param(
            {"node": None, "scheduler": "volcano"},
            True,
            "WaitingForPods",
            ["0 of 1 pods are placed; pod job-worker-0 waits for the scheduler 'volcano'"],
            id="a scheduler that has not said anything",
        ),
    ],
)
def test_what_is_told_of_one_pod(facts: dict[str, Any], asked: bool, reason: str, words: list[str]) -> None:
    cluster = starting(roles=[{"name": "worker", "replicas": 1}])
    cluster.pod("job-worker-0", phase="Pending", container="worker", **facts).wait(6).settle()
    assert cluster.job.status.reason == reason
    assert all(word in message(cluster) for word in words), message(cluster)
    assert (cluster.plans[-1].inspect is not None) is asked


def test_the_autoscaler_s_word_is_added_to_the_scheduler_s() -> None:
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
        ('admission webhook "x.example.com" denied the request: no', "those who run that policy"),
        ('failed calling webhook "x.example.com": EOF', "those who run it; Convoy tries again"),
        ('violates PodSecurity "restricted:latest"', "correct spec.roles[worker].template"),
    ],
)
def test_what_to_do_about_a_refusal(why: str, advice: str) -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.create_errors = {"job-worker-0": why}
    cluster.settle()
    assert cluster.job.status.reason == "PodRejected"
    assert why in message(cluster) and advice in message(cluster)


def running(**spec: Any) -> ToyCluster:
    cluster = ToyCluster(make_job(**spec), make_engine()).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    return cluster


def closing(cluster: ToyCluster) -> Plan:
    return plan(cluster.observed(), cluster.now)


def test_pods_with_a_sidecar_end_with_the_job_and_stay_for_their_logs() -> None:
    cluster = running().exit_all().settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED
    for name in cluster.pods:
        cluster.pod(name, phase="Running", exit_code=0)
    made = closing(cluster)
    assert not made.endings and made.requeue_after == LET_GO_SECONDS, "they may send off what the ranks wrote"
    made = closing(cluster.wait(LET_GO_SECONDS))
    assert made.endings == tuple(EndPod(pod.name, pod.uid) for pod in cluster.pods.values())
    assert not made.deletions and not made.commands
    # Their kubelets have been told, and take the time that the sidecars may have.
    before = cluster.now.timestamp()
    for name in cluster.pods:
        cluster.pod(name, ends_by=before)
    cluster.wait(60)
    made = closing(cluster)
    assert not made.endings and not made.deletions and made.requeue_after is not None
    cluster.wait(BESIDE_SECONDS)
    assert len(closing(cluster).delete) == 2, "a kubelet that does nothing is not waited for without end"


def test_a_sidecar_that_crashed_does_not_undo_what_the_ranks_did() -> None:
    cluster = running().exit_all()
    for name in cluster.pods:
        cluster.pod(name, phase="Failed", exit_code=0)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts.total) == (Phase.SUCCEEDED, 0)


def test_ranks_that_end_at_their_pod_s_own_deadline_have_not_completed() -> None:
    cluster = running()
    end = cluster.now.timestamp()
    for name in cluster.pods:
        cluster.pod(name, ends_by=end)
    for number in range(2):
        cluster.exit(number, ended=end + 1)
    cluster.step()
    assert cluster.job.status.phase is Phase.RUNNING, "their kubelets say why"
    for name in cluster.pods:
        cluster.pod(name, phase="Failed", exit_code=0, kubelet_reason="DeadlineExceeded")
    cluster.step()
    last = cluster.job.status.restarts.last
    assert last is not None and (last.reason, cluster.job.status.offenders) == ("PodDeadlineExceeded", [])


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"stoppers": PROBES, "exit_code": 143}, "ContainerStopped"),
        (
            {"kubelet_reason": "Evicted", "kubelet_message": "Usage of EmptyDir", "exit_code": 137},
            "StorageLimitExceeded",
        ),
        (
            {
                "kubelet_reason": "Evicted",
                "kubelet_message": "m",
                "exit_code": 137,
                "disruption": "TerminationByKubelet",
            },
            "PodEvicted",
        ),
    ],
)
def test_ranks_that_a_kubelet_ended_are_not_the_cause(facts: dict[str, Any], reason: str) -> None:
    cluster = running()
    rank = RankView(
        1, "EXITED", exit_code=128 + 9 if facts["exit_code"] == 137 else 143, ended=cluster.now.timestamp()
    )
    for uid, view in cluster.views.items():
        ranks = tuple(replace(rank, started=one.started) if one.rank == 1 else one for one in view.ranks)
        cluster.views[uid] = replace(view, ranks=ranks)
    cluster.pod("job-worker-1", phase="Failed", **facts)
    cluster.step()
    last = cluster.job.status.restarts.last
    assert last is not None and (last.reason, cluster.job.status.offenders) == (reason, [])


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"stoppers": PROBES, "exit_code": 75}, "ContainerStopped"),
        ({"exit_code": 75}, "PodLost"),
        (
            {"exit_code": 0, "kubelet_reason": "Evicted", "kubelet_message": "Usage of EmptyDir"},
            "StorageLimitExceeded",
        ),
        (
            {"exit_code": 75, "kubelet_reason": "Terminated", "disruption": "TerminationByKubelet"},
            "PodEvicted",
        ),
    ],
    ids=["a probe fails", "somebody signals the launcher", "too much storage", "the node shuts down"],
)
@pytest.mark.parametrize("others", [True, False], ids=["others lose it", "all are asked"])
def test_ranks_that_end_well_because_they_were_told_to_go_have_not_completed(
    facts: dict[str, Any], reason: str, others: bool
) -> None:
    cluster = running()
    if others:
        cluster.exit(0, 76, stderr="RuntimeError: Connection closed by peer", ended=cluster.now.timestamp())
    for number in (1,) if others else (0, 1):
        cluster.exit(number, 0, asked=True, ended=cluster.now.timestamp())
    cluster.step()
    assert cluster.job.status.phase is Phase.RUNNING
    for name in ["job-worker-1"] if others else list(cluster.pods):
        cluster.pod(name, phase="Failed", **facts)
    cluster.step()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason == reason
