"""Tests of ServingJobs on real nodes: requests, rollouts, faults."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, restore, start_components
from e2e.drive.node_health import POLICY, condemn, health, policy, taints
from e2e.drive.perturbations import kill_rank
from e2e.drive.serving_jobs import (
    ServingJobs,
    apart,
    complete,
    failures_after,
    is_ready,
    lm_role,
    load,
    seconds_until_served,
    seeded,
)

FAST = {"drainSeconds": 5}
"""A `spec.rollout` whose replicas end soon, because the requests of these tests are short."""


def assert_none_lost(report: dict[str, Any]) -> None:
    """Assert that every request of a load got its whole response."""
    assert report["ok"] == report["scheduled"] > 0, report


def test_a_job_answers_scales_and_rolls_without_a_lost_request(
    cluster: Cluster, serving: ServingJobs
) -> None:
    serving.create("roll", replicas=2, rollout=FAST)
    status = serving.wait_rolled("roll")
    assert status["ready"] == "2/2"
    url = serving.url("roll")
    before = complete(url, max_tokens=8)["choices"][0]["text"]
    assert complete(url, max_tokens=8)["choices"][0]["text"] == before, "a seed repeats its text"
    with load(url, 20, 600, "--no-keep-alive") as running:
        serving.patch("roll", roles=[seeded(2)])
        rolled = serving.wait_rolled("roll")
        cluster.kubectl("-n", serving.namespace, "scale", "servingjob/roll", "--replicas=1")
        serving.wait_rolled("roll")
        report = running.report()
    assert_none_lost(report)
    assert rolled["currentRevision"] != status["currentRevision"]
    assert complete(url, max_tokens=8)["choices"][0]["text"] != before
    heads, line = cluster.kubectl("get", "servingjobs", "-n", serving.namespace, "roll").splitlines()
    assert "READY" in heads and "1/1" in line and "RolloutComplete" in line


def test_a_killed_rank_serves_again_in_its_pod(cluster: Cluster, serving: ServingJobs) -> None:
    serving.create("killed", replicas=1)
    serving.wait_rolled("killed")
    url = serving.url("killed")
    (pod,) = serving.pods("killed")
    at = time.monotonic()
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 0)
    seconds_until_served(url, at, 20)
    (after,) = serving.pods("killed")
    assert after.metadata.uid == pod.metadata.uid
    assert after.status.container_statuses[0].restart_count == 0
    serving.wait(lambda: serving.incarnation("killed") == 2, 10, "the second incarnation")


@pytest.mark.full
def test_a_rollout_waits_while_kubernetes_lists_no_endpoints(cluster: Cluster, serving: ServingJobs) -> None:
    """Without kube-controller-manager the Service keeps its old endpoints, so no old replica may leave."""
    serving.create("stale", replicas=2, rollout=FAST)
    serving.wait_rolled("stale")
    try:
        with load(serving.url("stale"), 20, 600, "--no-keep-alive") as running:
            cluster.components.stop("kube-controller-manager")
            serving.patch("stale", roles=[seeded(2)])
            waits = "the Service does not list it yet"
            serving.wait(lambda: waits in json.dumps(serving.status("stale")["conditions"]), 60, waits)
            assert len(serving.pods("stale")) == 3, "both old replicas serve"
            start_components(cluster)
            serving.wait_rolled("stale")
            report = running.report()
    finally:
        start_components(cluster)
    assert_none_lost(report)


@pytest.mark.full
def test_a_broken_revision_never_takes_the_last_good_replica(serving: ServingJobs) -> None:
    serving.create("broken", replicas=1, rollout={**FAST, "progressDeadlineSeconds": 30})
    good = serving.wait_rolled("broken")["currentRevision"]
    url = serving.url("broken")
    crash = {"command": ["python", "-c", "raise SystemExit('no such model')"]}
    role = seeded(3)
    first = {**role["template"]["spec"]["containers"][0], **crash}
    with load(url, 10) as running:
        serving.patch("broken", roles=[{**role, "template": {"spec": {"containers": [first]}}}])
        serving.wait(
            lambda: serving.condition("broken", "Progressing")[0] == "False", 120, "the rollout is halted"
        )
        status = serving.status("broken")
        serving.patch("broken", rollout={"revision": good})
        serving.wait_rolled("broken")
        report = running.report()
    assert_none_lost(report)
    (progressing,) = (one for one in status["conditions"] if one["type"] == "Progressing")
    assert (
        "no such model" in progressing["message"] and "convoy rollout undo broken" in progressing["message"]
    )
    assert status["readyReplicas"] == 1


@pytest.mark.full
def test_a_dead_node_gets_no_further_requests(cluster: Cluster, serving: ServingJobs) -> None:
    serving.create("dead", replicas=2, roles=[apart("dead")])
    serving.wait_rolled("dead")
    url, busy = serving.url("dead"), leader(cluster)[1]
    # The machine's own requests pass through the first node's kube-proxy.
    spared = {busy, cluster.nodes[0].name}
    placed = [pod.spec.node_name for pod in serving.pods("dead")]
    victims = [node for node in placed if node not in spared]
    if not victims:
        pytest.skip(f"both replicas are on nodes that must live: {placed}")
    try:
        with load(url, 10, 600, "--timeout=5", "--no-keep-alive") as running:
            begun = time.monotonic() + 3
            serving.wait(lambda: time.monotonic() > begun, 5, "requests arrive")
            at = time.time()
            cluster.node(victims[0]).kill()

            def unready() -> bool:
                pods = [pod for pod in serving.pods("dead") if pod.spec.node_name == victims[0]]
                return all(
                    any(one.type == "Ready" and one.status == "False" for one in pod.status.conditions or ())
                    for pod in pods
                )

            serving.wait(unready, 30, "the pods of the dead node are not ready")
            seconds = time.time() - at
            quiet = time.monotonic() + 3
            serving.wait(lambda: time.monotonic() > quiet, 5, "all proxies know")
            after = time.time() - at
            serving.wait(
                lambda: sum(map(is_ready, serving.pods("dead"))) == 2, 90, "two replicas serve again"
            )
            report = running.report()
    finally:
        restore(cluster)
    assert seconds < 15
    late = failures_after(report, at + after)
    assert not late, f"requests failed after {after:.1f} s: {late}"
    assert report["ok"] > 0


@pytest.mark.full
def test_two_roles_and_groups_of_two_serve_in_one_job(serving: ServingJobs) -> None:
    roles = [lm_role(groupSize=2), lm_role("spare", replicas=1)]
    serving.create("pair", replicas=2, scaledRole="server", roles=roles, rollout=FAST)
    serving.wait_rolled("pair")
    assert [role["ready"] for role in serving.status("pair")["roles"]] == [2, 1]
    assert len(serving.pods("pair")) == 5
    alone = complete(serving.url("pair"), max_tokens=8)["choices"][0]["text"]
    serving.create("single", replicas=1)
    serving.wait_rolled("single")
    assert complete(serving.url("single"), max_tokens=8)["choices"][0]["text"] == alone, (
        "a pipeline of two pods computes the same text as one pod"
    )


@pytest.mark.full
def test_replicas_leave_a_condemned_node_without_a_lost_request(
    cluster: Cluster, serving: ServingJobs
) -> None:
    serving.create("spared", replicas=1, rollout=FAST)
    serving.wait_rolled("spared")
    url = serving.url("spared")
    (pod,) = serving.pods("spared")
    node = pod.spec.node_name
    with policy(cluster, "condemns", POLICY):
        serving.wait(lambda: bool(health(cluster, node)), 60, "the node has a NodeHealth")
        with load(url, 10) as running:
            condemn(cluster, node)
            serving.wait(
                lambda: all(pod.spec.node_name != node for pod in serving.pods("spared")),
                90,
                "no replica is left on the node",
            )
            serving.wait_rolled("spared")
            report = running.report()
        assert taints(cluster, node) == {"convoy.dev/quarantined": "NoSchedule"}
    assert_none_lost(report)


@pytest.mark.full
def test_a_drained_node_loses_no_request_of_a_single_replica(cluster: Cluster, serving: ServingJobs) -> None:
    serving.create("moved", replicas=1, rollout=FAST)
    serving.wait_rolled("moved")
    url = serving.url("moved")
    (pod,) = serving.pods("moved")
    node = pod.spec.node_name
    try:
        with load(url, 10) as running:
            cluster.kubectl(
                "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s",
                "--pod-selector=convoy.dev/job=moved", deadline=130,
            )  # fmt: skip
            serving.wait_rolled("moved")
            report = running.report()
    finally:
        cluster.kubectl("uncordon", node)
    assert_none_lost(report)
    assert all(pod.spec.node_name != node for pod in serving.pods("moved"))
