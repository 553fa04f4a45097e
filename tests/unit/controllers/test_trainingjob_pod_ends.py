"""Tests of pods that end: sidecars that outlive the ranks, and ranks that were stopped from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.children import EndPod
from convoy_controllers.plan import Plan
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.finished import LAUNCHER_EXIT_SECONDS, SIDECAR_EXIT_SECONDS
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import ContainerEnd, PodWarning, RankView
from convoy_crds.trainingjob_status import Phase

FETCH = ContainerEnd("fetch-data", 42, "Error", "fetch: no such bucket: traning-data\n")
MISSING = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "s" : configmap "scritps" not found')
PROBES = ("livenessProbe",)


def running(**spec: Any) -> ToyCluster:
    cluster = ToyCluster(make_job(**spec), make_engine()).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    return cluster


def closing(cluster: ToyCluster) -> Plan:
    return plan(cluster.observed(), cluster.now)


def test_pods_with_a_sidecar_end_with_the_job_and_are_kept() -> None:
    cluster = running().exit_all().settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED
    for name in cluster.pods:
        cluster.pod(name, phase="Running", exit_code=0)
    made = closing(cluster)
    assert not made.endings and made.requeue_after == LAUNCHER_EXIT_SECONDS, "they may upload logs"
    made = closing(cluster.wait(LAUNCHER_EXIT_SECONDS))
    assert made.endings == tuple(EndPod(pod.name, pod.uid) for pod in cluster.pods.values())
    assert not made.deletions and not made.commands
    # The kubelets have been asked to end the pods, and may use the grace period of the sidecars. They are not
    # asked again.
    before = cluster.now.timestamp()
    for name in cluster.pods:
        cluster.pod(name, ends_by=before)
    cluster.wait(60)
    made = closing(cluster)
    assert not made.endings and not made.deletions and made.requeue_after is not None
    cluster.wait(SIDECAR_EXIT_SECONDS)
    assert len(closing(cluster).deletions) == 2, "a kubelet that does nothing is not waited for without end"


def test_crashed_sidecar_does_not_undo_the_success_of_the_ranks() -> None:
    cluster = running().exit_all()
    for name in cluster.pods:
        cluster.pod(name, phase="Failed", exit_code=0)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts.total) == (Phase.SUCCEEDED, 0)


def test_ranks_that_end_at_the_pod_s_deadline_are_not_complete() -> None:
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
def test_ranks_ended_by_a_kubelet_are_not_the_cause(facts: dict[str, Any], reason: str) -> None:
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
def test_ranks_with_code_0_after_a_termination_request_are_not_complete(
    facts: dict[str, Any], reason: str, others: bool
) -> None:
    cluster = running()
    if others:
        cluster.exit(0, 76, stderr="RuntimeError: Connection closed by peer", ended=cluster.now.timestamp())
    for number in (1,) if others else (0, 1):
        cluster.exit(number, 0, termination_requested=True, ended=cluster.now.timestamp())
    cluster.step()
    assert cluster.job.status.phase is Phase.RUNNING
    for name in ["job-worker-1"] if others else list(cluster.pods):
        cluster.pod(name, phase="Failed", **facts)
    cluster.step()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason == reason
