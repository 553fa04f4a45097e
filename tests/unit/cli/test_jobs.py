"""Tests of commands that take a TrainingJob, a ServingJob or an Experiment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.jobs import KINDS, refusal
from convoy.cli.messages import ShownMessages
from convoy.cli.why_serving import explain
from convoy.client import Forbidden, NotFound

from .fake_client import client, condition, serving_job
from .test_show import NOW, job


class Jobs:
    """A collection of one job. It records the actions."""

    def __init__(self, about: Any, actions: list[str]) -> None:
        self.about, self.actions = about, actions

    def get(self, name: str) -> Any:
        return self.about

    def list(self, **_: Any) -> list[Any]:
        return [self.about]

    def suspend(self, name: str) -> None:
        self.actions.append(f"suspend {self.about.kind}")

    def resume(self, name: str) -> None:
        self.actions.append(f"resume {self.about.kind}")

    def delete(self, name: str) -> None:
        self.actions.append(f"delete {self.about.kind}")


@pytest.mark.parametrize(
    ("words", "actions", "output"),
    [
        (["suspend", "sj/llm"], ["suspend ServingJob"], "servingjob/llm finishes the requests in flight"),
        (["resume", "servingjobs/llm"], ["resume ServingJob"], "servingjob/llm resumes"),
        (["delete", "trainingjob/job", "--yes"], ["delete TrainingJob"], "trainingjob/job deleted"),
        (["delete", "llm", "--yes"], [], "there are trainingjob/job and servingjob/llm: write the kind"),
        (["restart", "sj/llm"], [], "restart is for TrainingJobs"),
        (
            ["delete", "node/llm", "--yes"],
            [],
            "'node/llm' names nothing: write NAME, trainingjob/NAME, servingjob/NAME or experiment/NAME",
        ),
        (
            ["delete", "spotpool/pool", "--yes"],
            [],
            "this command is not for SpotPools: write NAME, trainingjob/NAME, servingjob/NAME or "
            "experiment/NAME; for spotpool/pool use kubectl, such as `kubectl describe spotpool/pool`",
        ),
    ],
)
def test_the_kind_before_the_name_chooses_the_job(
    monkeypatch: pytest.MonkeyPatch, words: list[str], actions: list[str], output: str
) -> None:
    done: list[str] = []
    both = client(training=Jobs(job(), done), serving=Jobs(serving_job(), done))
    monkeypatch.setattr("convoy.cli.change.connect", lambda *_: both)
    result = CliRunner().invoke(app, words)
    assert output in result.output and result.exit_code == (0 if actions else 1)
    assert done == actions


def test_a_job_of_the_only_kind_is_found_without_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr("convoy.cli.change.connect", lambda *_: client(serving=Jobs(serving_job(), done)))
    assert CliRunner().invoke(app, ["suspend", "llm"]).exit_code == 0
    assert done == ["suspend ServingJob"]


class NoRight(Jobs):
    def list(self, **_: Any) -> list[Any]:
        raise Forbidden("you may not list this kind", 403)


def test_get_lists_the_jobs_of_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = {"p95Ms": 120.5, "requestsPerSecond": 40, "queue": 3}
    serving = Jobs(serving_job(traffic=traffic, model={"uid": "u", "step": 400}), [])
    monkeypatch.setattr("convoy.cli.show.connect", lambda *_: client(Jobs(job(), []), serving))
    lines = CliRunner().invoke(app, ["get"]).stdout.splitlines()
    assert lines[0].startswith("NAME") and lines[1].startswith("job") and lines[2] == ""
    assert lines[4].split()[:8] == ["llm", "2/2", "two", "120.5", "ms", "40", "3", "400"]
    monkeypatch.setattr("convoy.cli.show.connect", lambda *_: client(NoRight(job(), []), serving))
    found = CliRunner().invoke(app, ["get"])
    assert found.stdout.splitlines() == lines[3:]
    assert found.stderr == "note: you may not list this kind\n"
    one = CliRunner().invoke(app, ["get", "sj/llm"])
    assert one.stdout.splitlines() == lines[3:]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["get", "llm"], "TrainingJob, ServingJob or Experiment"),
        (["get", "sj/llm"], "ServingJob"),
        (["suspend", "llm", "--yes"], "TrainingJob, ServingJob or Experiment"),
    ],
)
def test_an_absent_job_is_named_with_the_namespace(
    monkeypatch: pytest.MonkeyPatch, words: list[str], kinds: str
) -> None:
    for module in ("show", "change"):
        monkeypatch.setattr(f"convoy.cli.{module}.connect", lambda *_: client())
    result = CliRunner().invoke(app, words)
    where = "not found in namespace team; convoy get -A lists all namespaces"
    assert (result.exit_code, result.stderr) == (1, f'error: {kinds} "llm" {where}\n')


def test_an_error_about_the_cluster_or_a_right_stays() -> None:
    absent, foreign = NotFound("llm not found", 404), NotFound("Convoy is not installed", 404)
    forbidden = Forbidden("you may not get this kind", 403)
    assert refusal(client(), "llm", KINDS, [absent, foreign]) is absent
    assert refusal(client(), "llm", KINDS, [foreign, foreign]) is foreign
    assert refusal(client(), "llm", KINDS, [absent, forbidden]) is forbidden


def test_no_jobs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoy.cli.show.connect", lambda *_: client())
    assert CliRunner().invoke(app, ["get"]).stdout == "no jobs and no experiments in namespace team\n"


def test_why_explains_the_replicas_the_model_and_the_revisions() -> None:
    groups = [
        {"role": "server", "number": 0},
        {"role": "server", "number": 1, "error": "exit code 1", "reason": "RankFailed"},
        {"role": "server", "number": 2, "error": "no model", "reason": "RankFailed", "failed": NOW},
    ]
    about = serving_job(
        conditions=[condition(), condition("True", "ReplicaFailed", "add memory", kind="Degraded")],
        message="add memory",
        currentRevision="one",
        internal={"groups": groups},
        model={"uid": "u", "job": "gpt", "store": "s3", "step": 400, "loss": 2.5},
        checkpoint={"replicas": 3, "copied": 2, "oldest": NOW},
        traffic={"p95Ms": 120, "queue": 3},
    )
    text = explain(about, NOW, ShownMessages())
    assert "! Degraded=True for 60s: ReplicaFailed" in text
    assert sum("add memory" in line for line in text) == 1, "a message is shown once"
    assert text[-6:] == [
        "Replica server-2 failed 0s ago: RankFailed: no model",
        "Replica server-1 had 0 counted faults: RankFailed: exit code 1",
        "Model: step 400 of TrainingJob gpt in CheckpointStore s3, loss 2.5000",
        "Saved states: 3 replicas, 2 with all copies, the oldest saved 0s ago",
        "Revisions: two (rolling out), one (running before)",
        "Traffic: p95 120 ms, waiting 3",
    ]


def test_why_prints_pods_and_events_of_a_servingjob(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = SimpleNamespace(get=lambda _: serving_job(), pods=lambda _: [], events=lambda _: [])
    monkeypatch.setattr("convoy.cli.why.connect", lambda *_: client(serving=jobs))
    lines = CliRunner().invoke(app, ["why", "llm"]).stdout.splitlines()
    assert lines[0] == "llm has 2/2 replicas ready: RolloutComplete"
    assert lines[-5:] == ["Pods:", "  none", "", "Events:", "  none"]
