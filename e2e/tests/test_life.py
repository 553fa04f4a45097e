"""Tests of a job's life on real nodes, from creation to deletion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import SMALL, memory, on_separate_nodes, one_role, own_container, single_threaded
from e2e.drive.job_watch import JobWatch, ObservedState
from e2e.drive.jobs import Jobs
from e2e.drive.pod_traces import traces
from e2e.drive.recovery import moment
from e2e.install import NAMESPACE, helm

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def short(early: Jobs) -> Iterator[JobWatch]:
    """Yield a watch of a job with a deadline and a time to live. Both expire while other tests run."""
    spec = {"activeDeadlineSeconds": DEADLINE_SECONDS, "ttlSecondsAfterFinished": 5}
    sleeps = own_container("python", "-c", "import time; time.sleep(600)")
    with JobWatch(early, "short") as watch:
        early.create("short", engine=None, roles=one_role(sleeps), **spec)
        yield watch


@pytest.fixture(scope="module")
def first(early: Jobs) -> str:
    """Create a plain job that runs to its end. Return its name."""
    early.create("first")
    return "first"


def test_an_applied_job_succeeds_and_its_held_out_loss_falls(
    early: Jobs, short: JobWatch, first: str
) -> None:
    status = early.wait_phase(first, "Succeeded", 120)
    assert (status["incarnation"], status["restarts"]["total"], status["ready"]) == (1, 0, "2/2")
    assert (status["progress"]["step"], status["progress"]["percent"]) == (SMALL["steps"], 100)
    (figure,) = status["progress"]["metrics"]
    assert (figure["name"], figure["step"]) == ("held_out_loss", SMALL["steps"]), (
        "the Engine gpt declares the metric"
    )
    losses = [
        float(found) for found in re.findall(r"held_out_loss ([0-9.]+)", early.log(f"{first}-worker-0"))
    ]
    assert len(losses) >= 2 and losses[-1] < losses[0] - 0.3
    assert figure["value"] == pytest.approx(losses[-1], rel=1e-4)
    early.wait(lambda: {pod.status.phase for pod in early.pods(first)} == {"Succeeded"}, 30, "the pods end")
    assert {"Completed", "Training"} <= early.events(first)


def test_kubectl_shows_the_job_at_a_glance(cluster: Cluster, early: Jobs, first: str) -> None:
    early.wait_phase(first, "Succeeded", 120)
    heads, line = cluster.kubectl(
        "get", "trainingjobs", "-n", early.namespace, first, "-o", "wide"
    ).splitlines()
    for head in ("PHASE", "READY", "STEP", "%", "CHECKPOINT", "RESTARTS", "REASON", "LOSS"):
        assert head in heads
    assert "Succeeded" in line and "2/2" in line and "Completed" in line
    assert first in cluster.kubectl("get", "convoy", "-n", early.namespace)
    assert "all ranks of worker completed" in cluster.kubectl("describe", "tj", "-n", early.namespace, first)


def test_an_unmodified_torchrun_script_trains_in_an_image_without_convoy(jobs: Jobs) -> None:
    script = (EXAMPLES / "ddp.py").read_text()
    assert "import convoy" not in script
    manifest = yaml.safe_load((EXAMPLES / "torchrun.yaml").read_text())
    jobs.core.create_namespaced_config_map(
        jobs.namespace, {"metadata": {"name": "ddp"}, "data": {"ddp.py": script}}
    )
    try:
        roles = [single_threaded(role) for role in manifest["spec"]["roles"]]
        jobs.create("own", **{"engine": None, **manifest["spec"], "roles": roles})
        status = jobs.wait_phase("own", "Succeeded", 120)
    finally:
        jobs.core.delete_namespaced_config_map("ddp", jobs.namespace)
    assert (status["ready"], status["restarts"]["total"]) == ("2/2", 0)
    assert status["progress"]["step"] > 0, "steps are detected in an unmodified script"


def test_suspend_deletes_the_pods_and_resume_continues_from_the_checkpoint(jobs: Jobs) -> None:
    jobs.create(
        "paused",
        engine={"name": "gpt", "params": {**SMALL, "steps": 100_000}},
        checkpoint=memory("1h"),
        roles=[{"name": "worker", "replicas": 2, "template": on_separate_nodes("paused")}],
    )
    jobs.wait_step("paused", 1)
    jobs.patch("paused", suspend=True)
    status = jobs.wait_phase("paused", "Suspended", 60)
    assert jobs.pods("paused") == []
    saved = status["checkpoint"]["step"]
    assert saved >= 1 and status["checkpoint"]["tier"] == "peer"
    # Parameters may be changed while the job is suspended. Fewer steps let the test wait for the end.
    jobs.patch("paused", engine={"params": {"steps": saved + 30}}, suspend=False)
    status = jobs.wait_phase("paused", "Succeeded", 120)
    found = re.search(r"continues after step (\d+)", jobs.log("paused-worker-0"))
    assert found is not None and int(found[1]) == saved
    assert (status["incarnation"], status["progress"]["step"]) == (2, saved + 30)
    assert status["restarts"]["total"] == 0


def test_a_deadline_fails_the_job_and_ttl_deletes_it(early: Jobs, short: JobWatch) -> None:
    def failed() -> ObservedState | None:
        return next((one for one in short.job if phase(one) == "Failed"), None)

    found = short.until(failed, 60, "short failed")
    assert found.body["status"]["reason"] == "DeadlineExceeded"
    begun = moment(found.body["metadata"]["creationTimestamp"])
    assert found.at - begun >= DEADLINE_SECONDS - 1
    early.wait(lambda: early.get("short") is None and not early.pods("short"), 60, "short deleted by its TTL")


def phase(state: ObservedState) -> str:
    """Return the phase of the job in a recorded state; empty if the job has no status yet."""
    return str((state.body.get("status") or {}).get("phase", ""))


def test_deletion_leaves_no_object_process_mount_cgroup_or_memory(cluster: Cluster, jobs: Jobs) -> None:
    endless = {**SMALL, "steps": 100_000}
    jobs.create("gone", engine={"name": "gpt", "params": endless}, checkpoint=memory())
    jobs.wait(lambda: jobs.status("gone").get("checkpoint", {}).get("step"), 60, "a checkpoint")
    job = (jobs.get("gone") or {})["metadata"]["uid"]
    uids = [job, *(pod.metadata.uid for pod in jobs.pods("gone"))]
    before = traces(cluster, uids)
    assert all(before.values()), f"negative control: the running job has traces of each kind: {before}"
    assert any(job in line for line in before["mounts"]), f"the job has checkpoint memory: {before['mounts']}"
    jobs.delete("gone")
    jobs.wait(
        lambda: not any(traces(cluster, uids).values()), 60, f"no traces left; found {traces(cluster, uids)}"
    )


def test_helm_test_trains_a_job_and_leaves_no_objects(cluster: Cluster) -> None:
    assert "Succeeded" in helm(cluster, "test", "convoy", "--timeout=300s", deadline=320)
    left = cluster.kubectl("get", "trainingjobs", "-n", NAMESPACE, "convoy-test", "--ignore-not-found")
    assert left.strip() == ""
