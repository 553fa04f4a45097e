"""Tests of the command line against a real API server: its output and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.client import Client

from .conftest import SERVING_SPEC, SPEC, Report, condition

Run = Callable[..., Result]
REJECTED = "the API server rejected the credentials; check the kubeconfig or the token"


@pytest.fixture
def convoy(control_plane: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `convoy`. It uses the administrator's kubeconfig or, with `token`, the
    kubeconfig of the token's owner.
    """

    def run(*words: str, token: str | None = None) -> Result:
        path = str(control_plane.kubeconfig(token))
        monkeypatch.setenv("KUBECONFIG", path)
        # The package kubernetes reads KUBECONFIG only when it is imported, so set the default location too.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", path)
        return CliRunner().invoke(app, list(words))

    return run


def test_a_job_is_shown_and_controlled(convoy: Run, client: Client, report: Report) -> None:
    here = ("--namespace", client.namespace)
    assert f"no jobs and no experiments in namespace {client.namespace}" in convoy("get", *here).stdout
    client.training_jobs.create({"metadata": {"name": "gpt"}, "spec": SPEC})
    report("gpt", phase="Running", ready="2/2", incarnation=1, conditions=[condition("Running")])
    line = convoy("get", *here).stdout.splitlines()[1].split()
    assert line[:3] == ["gpt", "Running", "2/2"]
    assert "gpt is Running" in (why := convoy("why", "gpt", *here).stdout) and "Pods:\n  none" in why

    assert "restarts (restartId " in convoy("restart", "gpt", "--yes", *here).stdout
    assert client.training_jobs.get("gpt").spec.recovery.restart_id
    assert "deletes its pods" in convoy("suspend", "gpt", "--yes", *here).stdout
    assert client.training_jobs.get("gpt").spec.suspend
    again = convoy("suspend", "gpt", "--yes", *here)
    assert (again.exit_code, again.stdout) == (1, "") and "is already suspended" in again.stderr
    assert "resumes" in convoy("resume", "gpt", *here).stdout
    logs = convoy("logs", "gpt", *here)
    assert (logs.exit_code, logs.stderr[:6]) == (1, "error:") and "has no pods" in logs.stderr
    assert "deleted" in convoy("delete", "gpt", "--yes", *here).stdout
    missing = convoy("get", "gpt", *here)
    assert missing.exit_code == 1
    where = f"not found in namespace {client.namespace}; convoy get -A lists all namespaces"
    assert missing.stderr == f'error: TrainingJob, ServingJob or Experiment "gpt" {where}\n'


def test_a_rollout_is_shown_and_controlled(convoy: Run, client: Client, report: Report) -> None:
    here = ("--namespace", client.namespace)
    client.serving_jobs.create({"metadata": {"name": "llm"}, "spec": SERVING_SPEC})
    revisions = [{"name": "two", "number": 2}, {"name": "one", "number": 1}]
    rolled = {"currentRevision": "two", "updateRevision": "two", "revisions": revisions, "ready": "1/1"}
    counts = [{"name": "server", "desired": 1, "replicas": 1, "updatedReady": 1}]
    done = condition("Progressing", "RolloutComplete", "all replicas run revision two")
    report("llm", "servingjobs", **rolled, roles=counts, conditions=[done], reason="RolloutComplete")
    assert convoy("get", *here).stdout.splitlines()[1].split()[:3] == ["llm", "1/1", "two"]
    assert "llm has 1/1 replicas ready" in convoy("why", "llm", *here).stdout
    assert "all replicas run revision two" in convoy("rollout", "status", "llm", *here).stdout
    assert "rolls to revision one" in convoy("rollout", "undo", "llm", *here).stdout
    assert client.serving_jobs.get("llm").spec.rollout.revision == "one"
    late = convoy("rollout", "status", "llm", "--timeout", "0.5", *here)
    assert late.exit_code == 1 and "not reconciled the newest spec" in late.stderr
    assert "of its spec" in convoy("rollout", "unpin", "llm", *here).stdout
    assert convoy("rollout", "pause", "llm", *here).exit_code == 0
    refused = convoy("rollout", "undo", "llm", *here)
    assert refused.exit_code == 1 and "is paused" in refused.stderr
    assert "deletes its pods" in convoy("suspend", "llm", *here).stdout
    assert "deleted" in convoy("delete", "llm", "--yes", *here).stdout


def test_a_node_is_exempted_and_explained(convoy: Run, client: Client, control_plane: Any) -> None:
    path = "/apis/convoy.dev/v1alpha1/nodehealths"
    head = {"apiVersion": "convoy.dev/v1alpha1", "kind": "NodeHealth", "spec": {}}
    control_plane.request("POST", path, {**head, "metadata": {"name": "cli-hw"}})
    status = {"status": {"nodeRef": {"name": "cli-node"}, "state": "Suspect"}}
    control_plane.request("PATCH", f"{path}/cli-hw/status", status, "application/merge-patch+json")
    assert convoy("guard", "exempt", "cli-node", "--reason", "a test", "--hours", "2").exit_code == 0
    assert "Exempt until" in convoy("guard", "why", "cli-node").stdout
    assert convoy("guard", "exempt", "cli-node", "--reason", "over", "--undo").exit_code == 0
    assert client.node_healths.get("cli-hw").spec.exempt is None
    assert "no NodeHealth for node cli-none" in convoy("guard", "why", "cli-none").stderr


def test_a_missing_right_is_one_sentence(convoy: Run) -> None:
    refused = convoy("get", token="a-wrong-token")
    assert (refused.exit_code, refused.stdout, refused.stderr) == (
        1,
        "",
        f"error: Unauthorized: {REJECTED}\n",
    )
