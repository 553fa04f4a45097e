"""Tests of `convoy get` and `convoy why` for Experiments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.messages import ShownMessages
from convoy.cli.show import experiment_row
from convoy.cli.why_experiment import MAX_LINES, explain, job_lines
from convoy.client import Forbidden
from convoy_crds.experiment import Experiment
from convoy_crds.trainingjob import TrainingJob

from .experiments import BLOCKS, ENDED, experiment
from .fake_client import client, condition
from .test_jobs import Jobs
from .test_show import NOW, job

RUNNING: dict[str, Any] = {
    **ENDED,
    "phase": "Running",
    "reason": "BlocksRunning",
    "message": "4 of 6 blocks have ended",
    "conditions": [
        condition("True", "Accepted", "the spec is valid", kind="Valid"),
        condition("False", "EngineChanged", "Engine 'gpt' has another image", kind="PlanKept"),
    ],
    "verdicts": [],
    "controls": [],
    "artefact": None,
    "summary": "",
}


def child(name: str, owner: str = "uid-exp", **status: Any) -> TrainingJob:
    body = job(**status).to_dict()
    owners = [{"uid": owner, "controller": True}]
    return TrainingJob.model_validate({**body, "metadata": {"name": name, "ownerReferences": owners}})


def with_uid(found: Experiment) -> Experiment:
    found.metadata.uid = "uid-exp"
    return found


def test_get_shows_blocks_verdicts_and_the_problem() -> None:
    assert list(experiment_row(experiment(**ENDED), NOW).values()) == [
        "trial", "Succeeded", "4/6", "1", "1 Supported", "-", "VerdictsReady", "",
    ]  # fmt: skip
    stuck = experiment(phase="Pending", reason="UnknownStore", message="spec.store: there is no s3")
    assert experiment_row(stuck, NOW)["MESSAGE"] == "spec.store: there is no s3"
    assert "no operator" in experiment_row(experiment(), NOW)["MESSAGE"]


def test_get_lists_jobs_and_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Jobs(experiment(**{**ENDED, "phase": "Analysing"}), [])
    both = client(training=Jobs(job(phase="Running"), []), experiments=trial)
    monkeypatch.setattr("convoy.cli.show.connect", lambda *_: both)
    lines = CliRunner().invoke(app, ["get"]).stdout.splitlines()
    assert [line.split()[0] for line in lines if line] == ["NAME", "job", "NAME", "trial"]
    assert lines[-1].split()[1] == "Analysing"
    one = CliRunner().invoke(app, ["get", "cexp/trial"])
    assert one.stdout.splitlines() == lines[-2:]


def test_why_names_the_problem_the_failed_runs_and_the_next_command() -> None:
    lines = explain(experiment(**RUNNING), NOW, ShownMessages())
    assert lines == [
        "trial is Running: BlocksRunning",
        "  4 of 6 blocks have ended",
        "  Valid=True for 60s: Accepted",
        "    the spec is valid",
        "! PlanKept=False for 60s: EngineChanged",
        "    Engine 'gpt' has another image",
        "  (! marks an unwanted condition)",
        "Blocks: 4/6 have ended, 1 failed (at most 3 may fail)",
        "Failed run: block 2 (unperturbed), arm hpa: JobFailed",
        "  exit code 1",
        "Figures of the blocks: convoy experiment status trial",
    ]


def test_why_of_an_ended_experiment_names_controls_verdicts_and_report() -> None:
    failed = {"name": "A/A", "passed": False, "message": "late differs"}
    lines = explain(experiment(**{**ENDED, "controls": [failed]}), NOW, ShownMessages())
    assert lines[-3:] == [
        "Control A/A failed: late differs",
        "Verdicts: 1 Supported",
        "Report: convoy experiment report trial",
    ]


def test_why_bounds_the_failed_runs() -> None:
    failures = [{"arm": "hpa", "reason": "JobFailed", "message": f"exit code {n}"} for n in range(10)]
    many = experiment(**{**RUNNING, "blocks": [{**BLOCKS[0], "failures": failures}]})
    lines = explain(many, NOW, ShownMessages())
    assert sum(line.startswith("Failed run") for line in lines) == MAX_LINES
    assert "2 more runs failed: convoy experiment status trial" in lines


def test_jobs_with_a_problem_come_first_and_succeeded_ones_are_left_out() -> None:
    jobs = [
        child("a", phase="Running", reason="Training", message="2 ranks run"),
        child("b", phase="Succeeded"),
        child("c", phase="Pending", reason="Unschedulable", message="no node has room"),
    ]
    lines = list(job_lines(jobs, NOW, ShownMessages()))
    assert [" ".join(line.split()) for line in lines] == [
        "trainingjob/c Pending, created - ago: Unschedulable",
        "no node has room",
        "trainingjob/a Running, created - ago: Training",
        "(`convoy why trainingjob/c` explains the first one)",
    ]
    more = [child(f"job-{number}", phase="Running") for number in range(MAX_LINES + 2)]
    assert "  2 more jobs" in list(job_lines(more, NOW, ShownMessages()))


def test_why_prints_the_jobs_of_this_experiment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [child("mine", phase="Running"), child("other", owner="uid-2", phase="Running")]
    training = SimpleNamespace(list=lambda **_: listed, get=Jobs(job(), []).get)

    def refuse(**_: Any) -> Any:
        raise Forbidden("you may not list ServingJobs", 403)

    about = with_uid(experiment(**ENDED))
    trials = SimpleNamespace(get=lambda _: about, events=lambda _: [])
    serving = SimpleNamespace(list=refuse)
    monkeypatch.setattr("convoy.cli.why.connect", lambda *_: client(training, serving, trials))
    text = CliRunner().invoke(app, ["why", "experiment/trial"]).stdout
    assert "trainingjob/mine" in text and "other" not in text
    assert text.endswith("  you may not list ServingJobs\n\nEvents:\n  none\n")


def test_an_equal_name_of_a_job_and_an_experiment_needs_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    both = client(training=Jobs(job(), []), experiments=Jobs(experiment(**ENDED), []))
    monkeypatch.setattr("convoy.cli.why.connect", lambda *_: both)
    found = CliRunner().invoke(app, ["why", "trial"])
    assert found.exit_code == 1
    assert "there are trainingjob/job and experiment/trial: write the kind before the name" in found.output
