"""Tests of `convoy rollout`: the state of a rollout, exit statuses, and the requests of each command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.client import rollout
from convoy.client.api import Api
from convoy.client.rollout import RolloutState
from convoy.client.serving_jobs import ServingJobs
from convoy_crds.servingjob import ServingJob

from .fake_client import client, condition, serving_job

ROLLING = condition(reason="RollingOut", message="revision two: 1 of 2 replicas are updated")
PAUSED = condition("Unknown", "RolloutPaused", "the rollout is paused")
HALTED = condition("False", "RevisionFailed", "the rollout is halted")
INVALID = condition("False", "UnknownEngine", "there is no Engine", kind="Valid")
NO_MODEL = condition("False", "ModelMissing", "it has no checkpoint in the store yet", kind="ModelReady")
DAMAGED = condition("False", "ModelDigestMismatch", "the checkpoint is damaged", kind="ModelReady")
SHORT = [{"name": "server", "desired": 2, "replicas": 2, "updatedReady": 1}]
OLD = {"currentRevision": "one"}


@pytest.mark.parametrize(
    ("job", "state", "words"),
    [
        (serving_job(), RolloutState.COMPLETE, "all replicas run revision two, and 2/2 replicas are ready"),
        (serving_job(roles=SHORT, ready="1/2"), RolloutState.PROGRESSING, "and 1/2 replicas are ready"),
        (serving_job(conditions=[ROLLING], **OLD), RolloutState.PROGRESSING, "1 of 2 replicas are updated"),
        (serving_job(generation=4), RolloutState.PROGRESSING, "not reconciled the newest spec"),
        (serving_job(observedGeneration=0), RolloutState.PROGRESSING, "no operator has reconciled"),
        (serving_job(conditions=[]), RolloutState.PROGRESSING, "no revision exists yet"),
        (serving_job(conditions=[PAUSED], **OLD), RolloutState.PAUSED, "is paused"),
        (serving_job(suspend=True), RolloutState.PAUSED, "convoy resume servingjob/llm"),
        (serving_job(conditions=[HALTED], **OLD), RolloutState.HALTED, "is halted"),
        (serving_job(conditions=[INVALID, condition()]), RolloutState.HALTED, "there is no Engine"),
        (serving_job(conditions=[NO_MODEL]), RolloutState.PROGRESSING, "no checkpoint in the store yet"),
        (serving_job(conditions=[DAMAGED]), RolloutState.HALTED, "the checkpoint is damaged"),
    ],
)
def test_the_state_of_a_rollout_follows_the_status(job: ServingJob, state: RolloutState, words: str) -> None:
    found, sentence = rollout.state(job)
    assert found is state and words in sentence and sentence.startswith("servingjob/llm")


def stored(*revisions: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "number": number} for name, number in revisions]


@pytest.mark.parametrize(
    ("job", "revision"),
    [
        (serving_job(), "one"),
        # Revision three failed after two had failed. Only one ever ran in all replicas.
        (
            serving_job(
                revisions=stored(("three", 3), ("two", 2), ("one", 1)), updateRevision="three", **OLD
            ),
            "one",
        ),
        # After an undo to one, which then has the highest number, an undo goes back to two.
        (
            serving_job(
                revisions=stored(("one", 3), ("two", 2)), updateRevision="one", currentRevision="one"
            ),
            "two",
        ),
        (serving_job(revisions=stored(("two", 2))), None),
    ],
)
def test_an_undo_goes_to_the_revision_before(job: ServingJob, revision: str | None) -> None:
    assert rollout.previous_revision(job) == revision


class Server(Api):
    """An API server with one ServingJob."""

    def __init__(self, job: ServingJob) -> None:
        self.namespace, self.job, self.patches = "team", job, list[Any]()
        self.custom = SimpleNamespace(
            get_namespaced_custom_object="get", patch_namespaced_custom_object="patch"
        )

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        body = self.job.to_dict()
        if verb == "patch":
            self.patches.append(arguments[-1]["spec"])
            rollout = body["spec"]["rollout"] | arguments[-1]["spec"].get("rollout", {})
            body["spec"]["rollout"] = rollout
        return body


Run = Callable[..., tuple[Result, list[Any]]]


@pytest.fixture
def convoy(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `convoy rollout` for a job. It returns the result and the patches."""

    def run(job: ServingJob, *words: str) -> tuple[Result, list[Any]]:
        server = Server(job)
        jobs = client(serving=ServingJobs(server))
        monkeypatch.setattr("convoy.cli.rollout.connect", lambda *_: jobs)
        return CliRunner().invoke(app, ["rollout", *words]), server.patches

    return run


@pytest.mark.parametrize(
    ("job", "words", "patch", "output"),
    [
        (serving_job(), ["pause"], {"rollout": {"paused": True}}, "convoy rollout resume llm"),
        (serving_job(rollout={"paused": True}), ["pause"], None, "already paused"),
        (serving_job(rollout={"paused": True}), ["resume"], {"rollout": {"paused": False}}, "goes on"),
        (serving_job(), ["resume"], None, "is not paused"),
        (serving_job(), ["undo"], {"rollout": {"revision": "one"}}, "convoy rollout unpin llm"),
        (serving_job(), ["undo", "--to", "one"], {"rollout": {"revision": "one"}}, "rolls to revision one"),
        (serving_job(), ["undo", "--to", "two"], None, "already runs or rolls to revision two"),
        (serving_job(), ["undo", "--to", "onee"], None, "did you mean 'one'"),
        (serving_job(revisions=stored(("two", 2))), ["undo"], None, "has no earlier revision"),
        (serving_job(rollout={"paused": True}), ["undo"], None, "first run: convoy rollout resume llm"),
        (serving_job(rollout={"revision": "one"}), ["unpin"], {"rollout": {"revision": ""}}, "of its spec"),
        (serving_job(), ["unpin"], None, "already follows its spec"),
    ],
)
def test_a_command_patches_the_spec_or_is_refused(
    convoy: Run, job: ServingJob, words: list[str], patch: dict[str, Any] | None, output: str
) -> None:
    command, *options = words
    result, patches = convoy(job, command, "llm", *options)
    assert output in result.output and result.exit_code == (0 if patch else 1)
    assert patches == ([patch] if patch else [])


def test_history_lists_the_use_of_each_revision(convoy: Run) -> None:
    job = serving_job(rollout={"revision": "one"})
    lines = convoy(job, "history", "llm")[0].output.splitlines()
    assert [line.split() for line in lines[1:]] == [["two", "2", "running"], ["one", "1", "pinned"]]


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [(serving_job(), 0, "2/2"), (serving_job(conditions=[ROLLING]), 0, "1 of 2"), (
        serving_job(conditions=[HALTED]), 1, "error: servingjob/llm: the rollout is halted"
    )],
)  # fmt: skip
def test_status_without_watch_returns_at_once(convoy: Run, job: ServingJob, code: int, words: str) -> None:
    result, _ = convoy(job, "status", "llm", "--no-watch")
    assert (result.exit_code, words in result.output) == (code, True)


@pytest.mark.parametrize(
    ("later", "code", "words"),
    [
        ([serving_job(conditions=[ROLLING], **OLD), serving_job()], 0, ["1 of 2", "2/2 replicas are ready"]),
        ([serving_job(conditions=[ROLLING]), serving_job(conditions=[HALTED])], 1, ["1 of 2", "is halted"]),
        ([serving_job(conditions=[ROLLING])] * 2, 1, ["1 of 2", "is not rolled out after 9 s"]),
    ],
)
def test_status_watches_until_the_end(
    monkeypatch: pytest.MonkeyPatch, convoy: Run, later: list[ServingJob], code: int, words: list[str]
) -> None:
    def watch(*_: Any) -> Iterator[Any]:
        yield from (job.to_dict() for job in later)

    monkeypatch.setattr("convoy.client.awaited.watch_object", watch)
    result, _ = convoy(later[0], "status", "llm", "--timeout", "9")
    lines = result.output.splitlines()
    assert result.exit_code == code and len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
