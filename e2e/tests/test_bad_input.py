"""Tests of bad input: within ten seconds Convoy reports what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiException

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import SMALL, one_role, own_container
from e2e.drive.jobs import Jobs


@pytest.fixture(scope="module", autouse=True)
def before(cluster: Cluster) -> dict[str, int]:
    """Return the restarts of each operator pod before the first bad input."""
    return restarts(cluster)


def restarts(cluster: Cluster) -> dict[str, int]:
    """Return the restarts of each operator pod, by the pod's name."""
    pods = cluster.get("pods", "-n", "convoy-system", "-l", "app.kubernetes.io/component=operator")["items"]
    assert pods
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
        for pod in pods
    }


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("no-replicas", {"roles": [{"name": "worker"}]}, ["spec.roles[0].replicas", "Required"]),
        (
            "min-above",
            {"roles": [{"name": "worker", "replicas": 2, "minReplicas": 3}]},
            ["spec.roles[0].minReplicas", "must not exceed replicas"],
        ),
        (
            "no-command",
            {"engine": None, "roles": one_role({"name": "worker", "image": "convoy/torch:dev"})},
            ["spec.roles", "template.spec.containers[0].command"],
        ),
        ("n" * 58, {}, ["pod names", "63 characters"]),
        ("no-role", {"success": "nobody"}, ["success must be AllRolesComplete or the name of a role"]),
    ],
    ids=["no-replicas", "min-above", "no-command", "long-name", "no-role"],
)
def test_the_api_server_rejects_invalid_input_at_admission(
    jobs: Jobs, name: str, spec: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ApiException) as refused:
        jobs.create(name, **spec)
    assert refused.value.status == 422
    assert all(word in str(refused.value.body) for word in words), refused.value.body


@pytest.mark.parametrize(
    ("name", "spec", "phase", "reason", "words"),
    [
        (
            "engine",
            {"engine": {"name": "gtp"}},
            "Pending",
            "UnknownEngine",
            ["spec.engine.name", "'gtp'", "gpt"],
        ),
        (
            "params",
            {"engine": {"name": "gpt", "params": {"steps": "many"}}},
            "Pending",
            "InvalidParams",
            ["spec.engine.params.steps", "integer"],
        ),
        (
            "image",
            {
                "engine": None,
                "roles": one_role(own_container("python", "-c", "pass", image="nowhere.invalid/no:1")),
            },
            "Pending",
            "ImagePullFailed",
            ["image-worker-0", "nowhere.invalid/no:1"],
        ),
        (
            "too-big",
            {
                "engine": None,
                "roles": one_role(
                    own_container("python", "-c", "pass", resources={"requests": {"cpu": "900"}})
                ),
            },
            "Pending",
            "Unschedulable",
            ["too-big-worker-0", "Insufficient cpu"],
        ),
        (
            "command",
            {"engine": None, "roles": one_role(own_container("no-such-program"))},
            "Failed",
            "CommandNotFound",
            ["rank 0", "no-such-program"],
        ),
        (
            "policy",
            {
                "engine": None,
                "roles": one_role(
                    own_container("python", "-c", "pass", securityContext={"privileged": True})
                ),
            },
            "Pending",
            "PodRejected",
            ["policy-worker-0", "privileged"],
        ),
        (
            "exits",
            {
                "engine": None,
                "roles": one_role(own_container("python", "-c", "raise SystemExit('no data here')")),
                "recovery": {"maxRestarts": 0},
            },
            "Failed",
            "MaxRestartsExceeded",
            ["rank 0", "code 1", "no data here"],
        ),
        (
            "exits-often",
            {
                "engine": None,
                "roles": one_role(own_container("python", "-c", "raise SystemExit('no data here')")),
            },
            "Restarting",
            "RankFailed",
            ["rank 0", "code 1", "no data here"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.islower() else "",
)
def test_a_condition_reports_the_error_and_its_field(
    jobs: Jobs, name: str, spec: dict[str, Any], phase: str, reason: str, words: list[str]
) -> None:
    jobs.create(name, **spec)
    status = jobs.wait_reason(name, reason, 10)
    assert status["phase"] == phase
    found = next(c["message"] for c in status["conditions"] if c["reason"] == reason)
    assert all(word in found for word in words), found
    # `kubectl get -o wide` shows this message, so it must be short.
    assert len(status["message"]) <= 240 and status["message"][:200] in found
    jobs.wait(lambda: reason in jobs.events(name), 10, f"an event {reason}")


def test_parameters_that_only_the_engine_rejects_fail_the_job(jobs: Jobs) -> None:
    jobs.create("refused", engine={"name": "gpt", "params": {**SMALL, "width": 63}})
    status = jobs.wait_reason("refused", "ParamsRefused", 60)
    assert status["phase"] == "Failed" and "width: 63 must be a multiple of heads=2" in status["message"]


def test_a_job_with_an_unknown_engine_starts_when_the_engine_is_created(jobs: Jobs) -> None:
    engine = jobs.custom.get_cluster_custom_object("convoy.dev", "v1alpha1", "engines", "gpt")
    late = {**engine, "metadata": {"name": "late"}}
    late.pop("status", None)
    jobs.create("healed", engine={"name": "late", "params": SMALL})
    jobs.wait_reason("healed", "UnknownEngine")
    jobs.custom.create_cluster_custom_object("convoy.dev", "v1alpha1", "engines", late)
    try:
        jobs.wait_phase("healed", "Succeeded", 120)
    finally:
        jobs.custom.delete_cluster_custom_object("convoy.dev", "v1alpha1", "engines", "late")


def test_invalid_jobs_do_not_affect_other_jobs_or_make_the_operator_loop(
    cluster: Cluster, jobs: Jobs, before: dict[str, int]
) -> None:
    bad = own_container("python", "-c", "pass", securityContext={"privileged": True})
    for index in range(5):
        jobs.create(f"bad-{index}", engine=None, roles=one_role(bad))
    jobs.wait_reason("bad-4", "PodRejected", 20)
    jobs.create("good")
    jobs.wait_phase("good", "Succeeded", 120)
    assert restarts(cluster) == before
