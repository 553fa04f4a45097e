"""Tests of a job's messages while it cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.plan import plan
from convoy_crds.trainingjob_status import Phase


def test_unknown_engine_is_named_until_the_engine_exists() -> None:
    cluster = ToyCluster(make_job(engine={"name": "gtp"})).settle()
    status = cluster.job.status
    assert (status.phase, status.reason, cluster.pods) == (Phase.PENDING, "UnknownEngine", {})
    assert "spec.engine.name" in status.message and "'gtp'" in status.message
    assert cluster.condition["Valid"] == ("False", "UnknownEngine")
    cluster.engine = make_engine("gtp")
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert cluster.condition["Valid"] == ("True", "Accepted")


@pytest.mark.parametrize(
    ("params", "path", "why"),
    [
        ({"steps": 0}, "spec.engine.params.steps", "minimum"),
        ({"steps": "many"}, "spec.engine.params.steps", "integer"),
        ({"stesp": 3}, "spec.engine.params", "unknown parameter 'stesp'"),
    ],
)
def test_wrong_parameters_are_shown_with_their_path(params: dict[str, Any], path: str, why: str) -> None:
    cluster = ToyCluster(make_job(engine={"name": "gpt", "params": params}), make_engine()).settle()
    status = cluster.job.status
    assert (status.phase, status.reason, cluster.pods) == (Phase.PENDING, "InvalidParams", {})
    assert path in status.message and why in status.message
    cluster.spec(engine={"name": "gpt", "params": {"steps": 3}}).settle()
    assert cluster.job.status.phase is Phase.RUNNING


def test_a_serving_engine_is_refused() -> None:
    cluster = ToyCluster(make_job(), make_engine(roleKind="Serving")).settle()
    assert cluster.job.status.reason == "WrongRoleKind"


def test_an_engine_with_a_broken_schema_is_refused() -> None:
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "InvalidSchema",
        "message": "$.type: 'x' is not valid",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = make_engine().to_dict() | {"status": {"conditions": [condition]}}
    cluster = ToyCluster(make_job(), type(make_engine()).model_validate(body)).settle()
    assert cluster.job.status.reason == "EngineNotReady"
    assert "$.type" in cluster.job.status.message


@pytest.mark.parametrize(
    ("facts", "reason", "words"),
    [
        (
            {
                "phase": "Pending",
                "waiting_reason": "ImagePullBackOff",
                "waiting_message": "not found",
                "image": "x:1",
            },
            "ImagePullFailed",
            ["job-worker-1", "'x:1'", "not found"],
        ),
        (
            {
                "phase": "Pending",
                "waiting_reason": "CreateContainerConfigError",
                "waiting_message": "runs as root",
            },
            "ContainerConfigError",
            ["job-worker-1", "runs as root"],
        ),
        (
            {
                "phase": "Pending",
                "node": None,
                "unschedulable": "0/3 nodes are available: 3 Insufficient cpu.",
            },
            "Unschedulable",
            ["job-worker-1", "Insufficient cpu", "add nodes"],
        ),
    ],
)
def test_a_pod_that_cannot_start_is_explained(facts: dict[str, Any], reason: str, words: list[str]) -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.launchers = False
    cluster.step()
    cluster.pod("job-worker-1", **facts).settle()
    status = cluster.job.status
    assert (status.phase, status.reason) == (Phase.PENDING, reason)
    assert cluster.condition["Running"] == ("False", reason)
    assert all(word in status.message for word in words), status.message


def test_missing_agents_are_reported_before_unschedulable() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.schedulable = False
    cluster.step()
    made = plan(replace(cluster.observed(), agent_nodes=0), cluster.now)
    assert made.status is not None and made.status["reason"] == "WaitingForAgent"


def test_rejected_pod_is_not_posted_again_and_the_message_has_the_reason() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.create_errors = {"job-worker-0": "violates PodSecurity restricted", "job-worker-1": "same"}
    cluster.settle()
    assert (cluster.job.status.reason, cluster.pods) == ("PodRejected", {})
    assert "violates PodSecurity" in cluster.job.status.message


def test_foreign_pod_with_the_same_name_is_named() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.step()
    cluster.pod("job-worker-0", owner_uid="somebody").settle()
    assert cluster.job.status.reason == "PodNameTaken"
    assert cluster.pods["job-worker-0"].owner_uid == "somebody"


def test_pods_of_a_deleted_job_of_the_same_name_are_awaited() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.step()
    cluster.pod("job-worker-0", owner_uid="predecessor", deleting=True).settle()
    assert cluster.job.status.reason == "WaitingForPods"
    assert "another owner's pod named job-worker-0 is still being deleted" in cluster.job.status.message
    cluster.pods.pop("job-worker-0")
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING


def test_image_without_python_fails_the_job() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.launchers = False
    cluster.step()
    cluster.pod(
        "job-worker-0",
        phase="Failed",
        exit_code=128,
        termination_reason="StartError",
        termination_message='exec: "python3": executable file not found in $PATH',
    ).settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.FAILED, "NoPythonInImage")


@pytest.mark.parametrize("stuck", ["unplaced", "never met its agent"])
def test_pods_that_miss_the_deadline_are_deleted_and_recreated(stuck: str) -> None:
    cluster = ToyCluster(make_job(recovery={"scheduleSeconds": 60}), make_engine())
    cluster.schedulable, cluster.launchers = stuck != "unplaced", False
    cluster.settle()
    first = cluster.uids
    assert cluster.job.status.reason == ("Unschedulable" if stuck == "unplaced" else "StartingPods")
    made = cluster.wait(60).step()
    assert cluster.job.status.reason == "ScheduleDeadline"
    assert cluster.pods == {} and made.requeue_after is not None
    cluster.schedulable = cluster.launchers = True
    cluster.settle()
    assert cluster.pods == {}, "it holds back first"
    cluster.wait(made.requeue_after).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert not set(first) & set(cluster.uids)


def test_a_corrected_spec_replaces_the_pods_that_never_ran() -> None:
    template = {"spec": {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "999"}}}]}}
    cluster = ToyCluster(
        make_job(roles=[{"name": "worker", "replicas": 1, "template": template}]), make_engine()
    )
    cluster.schedulable = False
    cluster.settle()
    cluster.schedulable = True
    cluster.spec(roles=[{"name": "worker", "replicas": 1}]).settle()
    assert cluster.job.status.phase is Phase.RUNNING


def test_command_that_agents_would_reject_is_rejected() -> None:
    container = {"image": "mine", "command": ["python", "-c"], "args": ["x" * 4096] * 64}
    roles = [{"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}}]
    cluster = ToyCluster(make_job(engine=None, roles=roles)).settle()
    assert cluster.condition["Valid"] == ("False", "InvalidSpec") and not cluster.pods


def test_parameters_that_do_not_fit_into_the_environment_are_rejected() -> None:
    job = make_job(engine={"name": "gpt", "params": {"note": "x" * 131_072}})
    engine = make_engine(paramsSchema={"properties": {"note": {}}})
    cluster = ToyCluster(job, engine).settle()
    assert cluster.condition["Valid"] == ("False", "InvalidSpec") and not cluster.pods
    assert cluster.job.status.message.startswith("spec.engine.params: 1310")
