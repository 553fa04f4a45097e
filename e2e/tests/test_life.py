"""A job's life on real nodes."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.drive.faults import kill_rank
from e2e.drive.job_specs import SMALL, apart, memory
from e2e.drive.jobs import Jobs
from e2e.drive.pod_traces import traces
from e2e.install import NAMESPACE, helm

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_job_goes_from_apply_to_succeeded_and_its_held_out_loss_falls(jobs: Jobs) -> None:
    jobs.create("first")
    status = jobs.wait_phase("first", "Succeeded", 120)
    assert (status["incarnation"], status["restarts"]["total"], status["ready"]) == (1, 0, "2/2")
    assert (status["progress"]["step"], status["progress"]["percent"]) == (SMALL["steps"], 100)
    (figure,) = status["progress"]["metrics"]
    assert (figure["name"], figure["step"]) == ("held_out_loss", SMALL["steps"]), "Engine gpt declares it"
    losses = [float(found) for found in re.findall(r"held_out_loss ([0-9.]+)", jobs.log("first-worker-0"))]
    assert len(losses) >= 2 and losses[-1] < losses[0] - 0.3
    assert figure["value"] == pytest.approx(losses[-1], rel=1e-4)
    jobs.wait(
        lambda: {pod.status.phase for pod in jobs.pods("first")} == {"Succeeded"}, 30, "launchers let go"
    )
    assert {"Completed", "Training"} <= jobs.events("first")


def test_kubectl_shows_the_job_at_a_glance(cluster: Cluster, jobs: Jobs) -> None:
    jobs.create("glance")
    jobs.wait_phase("glance", "Succeeded", 120)
    heads, line = cluster.kubectl(
        "get", "trainingjobs", "-n", jobs.namespace, "glance", "-o", "wide"
    ).splitlines()
    for head in ("PHASE", "READY", "STEP", "%", "CHECKPOINT", "RESTARTS", "REASON", "LOSS"):
        assert head in heads
    assert "Succeeded" in line and "2/2" in line and "Completed" in line
    assert "glance" in cluster.kubectl("get", "convoy", "-n", jobs.namespace)
    assert "all ranks of worker ended well" in cluster.kubectl(
        "describe", "tj", "-n", jobs.namespace, "glance"
    )


def test_an_unmodified_torchrun_script_trains_in_an_image_without_convoy(jobs: Jobs) -> None:
    script = (EXAMPLES / "ddp.py").read_text()
    assert "import convoy" not in script
    manifest = yaml.safe_load((EXAMPLES / "torchrun.yaml").read_text())
    jobs.core.create_namespaced_config_map(
        jobs.namespace, {"metadata": {"name": "ddp"}, "data": {"ddp.py": script}}
    )
    try:
        jobs.create("own", **{"engine": None, **manifest["spec"]})
        status = jobs.wait_phase("own", "Succeeded", 120)
    finally:
        jobs.core.delete_namespaced_config_map("ddp", jobs.namespace)
    assert (status["ready"], status["restarts"]["total"]) == ("2/2", 0)
    assert status["progress"]["step"] > 0, "steps are seen without any change in the script"


def test_suspend_gives_the_pods_back_and_resume_continues_from_the_checkpoint(jobs: Jobs) -> None:
    jobs.create(
        "paused",
        engine={"name": "gpt", "params": {**SMALL, "steps": 100_000}},
        checkpoint=memory("1h"),
        roles=[{"name": "worker", "replicas": 2, "template": apart("paused")}],
    )
    jobs.wait_step("paused", 1)
    jobs.patch("paused", suspend=True)
    status = jobs.wait_phase("paused", "Suspended", 60)
    assert jobs.pods("paused") == []
    saved = status["checkpoint"]["step"]
    assert saved >= 1 and status["checkpoint"]["tier"] == "peer"
    # While it is suspended its parameters may change: so few more steps that the end can be waited for.
    jobs.patch("paused", engine={"params": {"steps": saved + 30}}, suspend=False)
    status = jobs.wait_phase("paused", "Succeeded", 120)
    found = re.search(r"continues after step (\d+)", jobs.log("paused-worker-0"))
    assert found is not None and int(found[1]) == saved
    assert (status["incarnation"], status["progress"]["step"]) == (2, saved + 30)
    assert status["restarts"]["total"] == 0


def test_a_deadline_fails_the_job_and_ttl_deletes_it(jobs: Jobs) -> None:
    params = {**SMALL, "steps": 100_000}
    begun = time.monotonic()
    jobs.create(
        "short", engine={"name": "gpt", "params": params}, activeDeadlineSeconds=20, ttlSecondsAfterFinished=5
    )
    status = jobs.wait(
        lambda: (found := jobs.status("short")).get("phase") == "Failed" and found, 60, "short failed"
    )
    assert status["reason"] == "DeadlineExceeded"
    assert time.monotonic() - begun >= 19
    jobs.wait(lambda: jobs.get("short") is None and not jobs.pods("short"), 60, "short deleted by its TTL")


def test_deletion_leaves_no_object_process_mount_cgroup_or_memory(cluster: Cluster, jobs: Jobs) -> None:
    endless = {**SMALL, "steps": 100_000}
    jobs.create("gone", engine={"name": "gpt", "params": endless}, checkpoint=memory())
    jobs.wait(lambda: jobs.status("gone").get("checkpoint"), 60, "a checkpoint")
    job = (jobs.get("gone") or {})["metadata"]["uid"]
    uids = [job, *(pod.metadata.uid for pod in jobs.pods("gone"))]
    before = traces(cluster, uids)
    assert all(before.values()), f"the looking works: {before}"
    assert any(job in line for line in before["mounts"]), f"it has memory: {before['mounts']}"
    jobs.delete("gone")
    jobs.wait(lambda: not any(traces(cluster, uids).values()), 60, f"no trace, but {traces(cluster, uids)}")


def test_a_killed_rank_restarts_in_its_pod(cluster: Cluster, jobs: Jobs) -> None:
    jobs.create("tough", engine={"name": "gpt", "params": {**SMALL, "steps": 250}}, checkpoint=memory())
    jobs.wait(lambda: jobs.status("tough").get("checkpoint"), 60, "a checkpoint")
    before = [pod.metadata.uid for pod in jobs.pods("tough")]
    pod = jobs.pods("tough")[1]
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 1)
    status = jobs.wait_phase("tough", "Succeeded", 300)
    assert [pod.metadata.uid for pod in jobs.pods("tough")] == before
    assert (status["restarts"]["total"], status["incarnation"]) == (1, 2)
    assert status["restarts"]["last"]["reason"] == "RankKilled"
    assert status["progress"]["step"] == 250


def test_helm_test_trains_a_job_and_leaves_nothing(cluster: Cluster) -> None:
    assert "Succeeded" in helm(cluster, "test", "convoy", "--timeout=300s", deadline=320)
    left = cluster.kubectl("get", "trainingjobs", "-n", NAMESPACE, "convoy-test", "--ignore-not-found")
    assert left.strip() == ""
