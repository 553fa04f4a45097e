"""Tests of the commands suspend, resume and restart: the requests that they refuse, and their
confirmations.
"""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli import change
from convoy.cli.__main__ import app
from convoy.cli.change import restart_loss
from convoy.client import Refused
from convoy.client.job_actions import refusal
from convoy_crds.trainingjob import TrainingJob

from .fake_client import client

LOCAL = {"tiers": {"local": {}}}
STORE = {"tiers": {"local": {}, "remote": {"store": "s3"}}}
OWN = {"template": {"spec": {"containers": [{"image": "mine", "command": ["mine"]}]}}}


def job(
    phase: str | None = "Running", step: int = 0, incarnation: int = 1, suspend: bool = False, **spec: Any
) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job"},
            "spec": {"roles": [{"name": "w", "replicas": 1}], "suspend": suspend, **spec},
            "status": {"phase": phase, "incarnation": incarnation, "progress": {"step": step}},
        }
    )


@pytest.mark.parametrize(
    ("about", "words", "steps"),
    [
        (job(step=40, engine={"name": "gpt"}), "starts again at step 0 and loses 40 steps", 40),
        (job(engine={"name": "gpt"}), "starts again at step 0", 0),
        (job(step=7), "loses 7 steps, unless its program saves its own state", 7),
        (job(step=40, checkpoint=LOCAL), "", 0),
        (job(step=40, checkpoint=STORE), "", 0),
        (job("Pending", incarnation=0), "", 0),
    ],
)
def test_a_restart_reports_the_steps_lost(about: TrainingJob, words: str, steps: int) -> None:
    found = restart_loss(about)
    assert found[0].endswith(words) and bool(found[0]) == bool(words) and found[1] == steps


class FakeJobs:
    def __init__(self, about: TrainingJob) -> None:
        self.about = about
        self.actions: list[str] = []

    def get(self, _: str) -> TrainingJob:
        return self.about

    def suspend(self, _: str) -> TrainingJob:
        return self._act("suspend")

    def resume(self, _: str) -> TrainingJob:
        return self._act("resume")

    def restart(self, _: str) -> TrainingJob:
        return self._act("restart")

    def _act(self, verb: str) -> TrainingJob:
        if why := refusal(self.about, verb):
            raise Refused(why)
        self.actions.append(verb)
        return self.about


@pytest.mark.parametrize(
    ("about", "arguments", "code", "words"),
    [
        (job(step=40), ["suspend", "job"], 1, "add --yes"),
        (job(step=40), ["suspend", "job", "--yes"], 0, "deletes its pods"),
        (job(step=40), ["restart", "job"], 1, "loses 40 steps"),
        (job(step=0), ["suspend", "job"], 0, "starts again at step 0"),
        (job(step=40, checkpoint=LOCAL), ["suspend", "job"], 0, "saves its state and deletes its pods"),
        (job("Succeeded"), ["resume", "job"], 1, "has ended"),
        (job("Suspended", suspend=True), ["resume", "job"], 0, "resumes"),
    ],
)
def test_without_a_terminal_a_command_that_loses_steps_needs_yes(
    monkeypatch: pytest.MonkeyPatch, about: TrainingJob, arguments: list[str], code: int, words: str
) -> None:
    jobs = FakeJobs(about)
    monkeypatch.setattr(change, "connect", lambda *_: client(training=jobs))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    assert words in result.output
    assert jobs.actions == ([] if code else arguments[:1])
