"""Tests with unchanged manifests and programs, which are modelled on public reports by users of other
systems.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank

pytestmark = pytest.mark.full

FIELD = Path(__file__).parent / "field"
NAMESPACE = "field"


@pytest.fixture(scope="module")
def field(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace without a pod security level. Its ConfigMap `scripts` has the programs."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    programs = [f"--from-file={path}" for path in sorted(FIELD.glob("*.py"))]
    cluster.kubectl("-n", NAMESPACE, "create", "configmap", "scripts", *programs)
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s", deadline=130)


@pytest.fixture
def jobs(cluster: Cluster, field: str) -> Iterator[Jobs]:
    """Yield the namespace's jobs. After the test, delete all jobs that it left."""
    made = Jobs.of(cluster, field)
    yield made
    made.delete_all()


def apply(cluster: Cluster, file: str, *options: str) -> dict[str, dict[str, Any]]:
    """Apply a manifest of the folder `field`. Return its objects by name."""
    cluster.kubectl("-n", NAMESPACE, "apply", *options, "-f", str(FIELD / file))
    objects = yaml.safe_load_all((FIELD / file).read_text())
    return {body["metadata"]["name"]: body for body in objects}


def message(jobs: Jobs, name: str, kind: str) -> str:
    """Return the message of a job's condition; empty if the job does not have the condition."""
    found = (one["message"] for one in jobs.status(name).get("conditions", ()) if one["type"] == kind)
    return next(found, "")


def ranks_log(cluster: Cluster, name: str) -> str:
    """Return the logs of a job's workers, as `kubectl logs` returns them without `-c`."""
    return cluster.kubectl("-n", NAMESPACE, "logs", "-l", f"convoy.dev/job={name}", "--tail=-1")


def test_a_sidecar_that_admission_puts_first_does_not_affect_the_job(cluster: Cluster, jobs: Jobs) -> None:
    cluster.kubectl("apply", "-f", str(FIELD / "sidecar-first-policy.yaml"))
    try:
        jobs.wait(lambda: _injected(cluster), 30, "the policy is active")
        apply(cluster, "sidecar-first.yaml")
        status = jobs.wait_phase("meshfirst", "Succeeded", 180)
    finally:
        cluster.kubectl("delete", "-f", str(FIELD / "sidecar-first-policy.yaml"))
    assert (status["ready"], status["restarts"]["total"]) == ("2/2", 0)
    pods = jobs.pods("meshfirst")
    assert [pod.spec.containers[0].name for pod in pods] == ["mesh-proxy"] * 2
    assert "step 60" in ranks_log(cluster, "meshfirst")
    # The sidecar never ends by itself. Convoy must end its pod anyway, and keep the pod so that its logs stay
    # readable.
    ended = {"Succeeded", "Failed"}
    jobs.wait(lambda: {pod.status.phase for pod in jobs.pods("meshfirst")} <= ended, 120, "pods end")
    assert len(jobs.pods("meshfirst")) == 2
    assert "step 60" in ranks_log(cluster, "meshfirst")


def _injected(cluster: Cluster) -> bool:
    """Return True if the API server applies the policy to pods. It needs a moment to load a policy."""
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {"field-inject": "first"}},
        "spec": {"containers": [{"name": "worker", "image": "none"}]},
    }
    made = cluster.kubectl(
        *("-n", NAMESPACE, "create", "--dry-run=server", "-o", "yaml", "-f", "-"), text=json.dumps(probe)
    )
    return "mesh-proxy" in made


def test_a_failed_init_container_is_named_with_its_last_output(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "init-fails.yaml")
    status = jobs.wait_phase("initfails", "Failed", 180)
    for words in ("fetch-data", "42", "no such bucket: traning-data"):
        assert words in message(jobs, "initfails", "Failed"), status
    assert status["restarts"]["total"] <= 3
    assert not status.get("offenders"), "no node is blamed"


def test_a_queue_evicts_with_the_template_restored(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "queued.yaml")
    jobs.wait_phase("queued", "Suspended", 30)
    node = cluster.nodes[0].name
    placed = {"nodeSelector": {"kubernetes.io/hostname": node}}
    jobs.patch(
        "queued", suspend=False, roles=[{"name": "worker", "replicas": 1, "template": {"spec": placed}}]
    )
    jobs.wait_step("queued", 5, 120)
    assert jobs.pods("queued")[0].spec.node_name == node
    jobs.patch("queued", suspend=True, roles=[{"name": "worker", "replicas": 1, "template": {"spec": {}}}])
    status = jobs.wait_phase("queued", "Suspended", 60)
    assert jobs.pods("queued") == [] and status["checkpoint"]["step"] >= 5
    jobs.patch("queued", suspend=False)
    jobs.wait_step("queued", status["checkpoint"]["step"] + 1, 120)
    assert "kubernetes.io/hostname" not in jobs.pods("queued")[0].spec.node_selector


def test_torchrun_forms_one_group_in_every_kind_of_command(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "torchrun.yaml")
    jobs.wait_phase("dashdash", "Succeeded", 180)
    assert "rank 1 of world 2: sum 2 argv ['--epochs', '3']" in ranks_log(cluster, "dashdash")
    jobs.wait_phase("shell-bare", "Succeeded", 180)
    assert "rank 1 of world 2: sum 2" in ranks_log(cluster, "shell-bare")
    jobs.wait_phase("shell-kf", "Succeeded", 180)
    assert "rank 3 of world 4: sum 4" in ranks_log(cluster, "shell-kf")
    # The script asks torchrun for two processes, but the job has one process per replica. So the job must be
    # rejected.
    message_text = message(jobs, "nproc-two", "Valid")
    assert "processesPerReplica" in message_text and "nproc" in message_text, message_text
    assert jobs.pods("nproc-two") == []


def test_a_user_without_an_account_in_the_image_has_a_home(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "foreign-image.yaml")
    jobs.wait_phase("nouser", "Succeeded", 120)
    log = ranks_log(cluster, "nouser")
    assert "cache ok" in log and "uid 65532" in log
    assert "user None" not in log and "Traceback" not in log
    message_text = message(jobs, "asroot", "Valid")
    assert "runAsUser" in message_text and "runAsNonRoot: false" in message_text, message_text


def test_helpers_of_an_ended_rank_release_their_ports(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "left-children.yaml")
    jobs.wait_step("leftover", 2, 120)
    pod = jobs.pods("leftover")[0]
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 0)
    jobs.wait(lambda: jobs.status("leftover")["incarnation"] == 2, 60, "a second incarnation")
    jobs.wait(lambda: "[2/0] helper" in jobs.log(pod.metadata.name), 60, "its helper")
    assert "[2/0] helper: listens on 7799" in jobs.log(pod.metadata.name)


@pytest.mark.parametrize("manner", [("--server-side=false",), ("--server-side",)], ids=["client", "server"])
def test_fields_without_a_value_equal_omitted_fields(
    cluster: Cluster, jobs: Jobs, manner: tuple[str, ...]
) -> None:
    apply(cluster, "nulls.yaml", *manner)
    jobs.wait_phase("nulls", "Succeeded", 120)


def test_a_null_in_an_affinity_does_not_stall_a_running_job(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "affinity-null.yaml")
    jobs.wait_phase("affnull", "Running", 120)
    # The rank starts without the zygote, so its process is not named after the rank. Find it by its command
    # line.
    kill = "for p in /proc/[0-9]*; do grep -q 'slee[p](500)' $p/cmdline && kill -9 ${p#/proc/}; done; true"
    cluster.kubectl("-n", NAMESPACE, "exec", "affnull-worker-0", "--", "sh", "-c", kill)
    jobs.wait(
        lambda: (status := jobs.status("affnull"))["incarnation"] == 2 and status["phase"] == "Running",
        120,
        "the job runs again on another node",
    )


def test_a_template_that_makes_no_valid_pod_is_rejected_with_its_field_path(
    cluster: Cluster, jobs: Jobs
) -> None:
    made = subprocess.run(
        [cluster.binaries / "kubectl", "-n", NAMESPACE, "apply", "-f", FIELD / "no-mount-path.yaml"],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if made.returncode:
        assert "template.spec.containers[0].volumeMounts[0].mountPath" in made.stderr
        return
    jobs.wait(lambda: message(jobs, "nomount", "Valid"), 20, "a condition")
    message_text = message(jobs, "nomount", "Valid")
    assert jobs.condition("nomount", "Valid")[0] == "False"
    assert "spec.roles[0].template.spec.containers[0].volumeMounts[0].mountPath" in message_text, message_text


def test_a_rank_that_exits_with_0_too_early_is_the_cause(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "early-exit.yaml")
    status = jobs.wait_phase("early", "Failed", 240)
    message_text = message(jobs, "early", "Failed")
    assert (
        "rank 1" in message_text
        and "exited with code 0 after step 30" in message_text
        and "uneven inputs" in message_text
    ), message_text
    assert status["restarts"]["total"] < 10 and not status.get("offenders")


def test_a_program_below_a_shell_saves_before_the_pod_ends(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "shell-around-program.yaml")
    pod = "slowterm-shell-worker-0"
    jobs.wait(lambda: jobs.pods("slowterm-shell") and "runs" in _log_so_far(jobs, pod), 120, "it runs")
    with subprocess.Popen(
        [cluster.binaries / "kubectl", "-n", NAMESPACE, "logs", "-f", pod],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        jobs.patch("slowterm-shell", suspend=True)
        written, _ = follower.communicate(timeout=90)
    assert "saving 20/20" in written and "saved all" in written, written
    jobs.wait_phase("slowterm-shell", "Suspended", 60)


def _log_so_far(jobs: Jobs, pod: str) -> str:
    """Return a pod's log; empty if its container has not started."""
    try:
        return jobs.log(pod)
    except Exception:
        return ""


def test_a_script_that_closes_no_file_loses_no_output(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "ends.yaml")
    jobs.wait_phase("ends", "Succeeded", 120)
    jobs.wait(
        lambda: "accuracy 0.2" in cluster.kubectl("-n", NAMESPACE, "logs", "ends-worker-0", "-c", "reader"),
        30,
        "all three lines are in the file",
    )


def test_the_reason_a_pod_waits_outlives_the_pod(cluster: Cluster, jobs: Jobs) -> None:
    apply(cluster, "missing-config.yaml")
    jobs.wait(lambda: "scritps" in jobs.status("noconfig").get("message", ""), 60, "the ConfigMap is named")
    jobs.wait(lambda: "wandb" in jobs.status("nosecret").get("message", ""), 60, "the Secret is named")
    status = jobs.wait_reason("noconfig", "ScheduleDeadline", 90)
    assert "scritps" in status["message"] or "scritps" in message(jobs, "noconfig", "Running"), status
    assert not status.get("offenders")
