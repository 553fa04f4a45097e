"""Tests of `convoy why NAME --provenance`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy_controllers.trainingjob.provenance import of_run, spec_digest
from convoy_controllers.views import PodView
from convoy_crds.terms import ANNOTATION_REVISION, LABEL_ROLE
from convoy_crds.trainingjob import TrainingJob

from .fake_client import client, serving_job

DIGEST = f"sha256:{'a' * 64}"


class One:
    """A collection with one object."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def get(self, name: str) -> Any:
        return self._found


def finished(**status: Any) -> TrainingJob:
    container = {"name": "main", "image": "team/own:v1", "command": ["python", "train.py", "--seed=7"]}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    body = {
        "metadata": {"name": "run", "namespace": "team", "annotations": {ANNOTATION_REVISION: "0a1"}},
        "spec": {"roles": [role]},
        "status": {
            "phase": "Succeeded",
            "startTime": "2026-01-01T11:00:00Z",
            "completionTime": "2026-01-01T12:00:00Z",
            "restarts": {"total": 2, "counted": 1},
            "result": {"accuracy": 0.9},
            "progress": {"step": 30, "loss": 0.25, "metrics": [{"name": "f1", "value": 0.8}]},
            "checkpoint": {"incarnation": 3, "step": 30, "tier": "local", "time": "2026-01-01T11:59:00Z"},
            **status,
        },
    }  # fmt: skip
    job = TrainingJob.model_validate(body)
    pod = PodView(
        "p", "p", "Succeeded", "n0", labels={LABEL_ROLE: "worker"}, image_ids={"main": f"x@{DIGEST}"}
    )
    job.status.provenance = of_run(job, None, [pod])
    job.status.provenance.python, job.status.provenance.torch = "3.11.7", "2.13.0"
    job.status.provenance.hardware = ["H200"]
    return job


def run(monkeypatch: pytest.MonkeyPatch, found: Any, *options: str) -> tuple[int, str]:
    serving = not isinstance(found, TrainingJob)
    connected = client(serving=One(found)) if serving else client(training=One(found))
    monkeypatch.setattr("convoy.cli.why.connect", lambda *_: connected)
    done = CliRunner().invoke(app, ["why", "run", *options])
    return done.exit_code, done.output


def test_the_text_has_all_that_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(monkeypatch, finished(), "--provenance")
    assert code == 0
    for line in (
        "The record of run (Succeeded) is complete",
        f"Image of worker/main: team/own:v1, ran x@{DIGEST}",
        "Code: 0a1",
        "Hardware: H200",
        "Seed: 7",
        "Ran from 2026-01-01 11:00:00+00:00 to 2026-01-01 12:00:00+00:00, 2 restarts",
        "Last step: 30, loss 0.25",
        "Result: {'accuracy': 0.9}",
        "Checkpoint: step 30 of incarnation 3 in tier local",
    ):
        assert line in text.splitlines()
    assert "f1" in text
    assert "Python 3.11.7, torch 2.13.0\n" in text
    assert "edited since" not in text


def test_the_text_says_what_is_missing_and_whether_the_spec_was_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = finished()
    assert job.status.provenance is not None
    job.status.provenance.missing = ["the seed"]
    job.spec.ttl_seconds_after_finished = 60
    text = run(monkeypatch, job, "--provenance")[1]
    assert "The record of run (Succeeded) is incomplete\n! It lacks the seed\n" in text
    assert "but the spec has been edited since" in text


def test_json_has_the_job_to_create_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = finished()
    code, text = run(monkeypatch, job, "--provenance", "-o", "json")
    found = json.loads(text)
    assert (code, found["complete"], found["specUnchanged"]) == (0, True, True)
    assert found["run"]["result"] == {"accuracy": 0.9}
    assert found["run"]["restarts"]["total"] == 2
    repeated = TrainingJob.model_validate(found["again"])
    pinned = found["again"]["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"]
    assert pinned == f"team/own@{DIGEST}"
    assert spec_digest(repeated) != spec_digest(job)
    assert TrainingJob.model_validate({"metadata": {"name": "x"}, "spec": found["spec"]}).spec == job.spec


def test_jobs_without_a_record_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = finished(phase="Running")
    job.status.provenance = None
    assert run(monkeypatch, job, "--provenance") == (
        1,
        "error: run is Running: Convoy records the run when the job ends\n",
    )
    job = finished()
    job.status.provenance = None
    assert "has no record" in run(monkeypatch, job, "--provenance")[1]
    assert run(monkeypatch, serving_job(), "--provenance") == (
        1,
        "error: llm is no TrainingJob: only TrainingJobs have a record\n",
    )
    assert run(monkeypatch, job, "-o", "json") == (1, "error: --output json needs --provenance\n")
