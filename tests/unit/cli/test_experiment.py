"""Tests of `convoy experiment` status, stop and rerun, and of the commands suspend, resume and delete for
Experiments: their texts, and their requests.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.client.api import Api
from convoy.client.experiments import Experiments
from convoy_crds.experiment import Experiment

from .experiments import ENDED, PLAN, RESULT, experiment
from .fake_client import client

RUNNING = {**ENDED, "phase": "Running", "verdicts": [], "controls": [], "artefact": None, "summary": ""}


class Server(Api):
    """An API server with experiments of one namespace."""

    def __init__(self, *found: Experiment) -> None:
        self.namespace = "team"
        self.found = {one.metadata.name: one.to_dict() for one in found}
        self.writes: list[Any] = []
        self.deleted: list[str] = []
        self.custom = SimpleNamespace(
            **{
                f"{verb}_namespaced_custom_object": verb
                for verb in ("get", "list", "patch", "create", "delete")
            }
        )

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        if verb == "list":
            return {"items": list(self.found.values())}
        if verb == "get":
            return self.found[arguments[-1]]
        if verb == "delete":
            return self.deleted.append(arguments[-1])
        self.writes.append(arguments[-1])
        return self.found[arguments[-2]] if verb == "patch" else arguments[-1]


Run = Callable[..., tuple[Result, list[Any]]]


@pytest.fixture
def convoy(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `convoy experiment` in a cluster with one experiment at most. It returns
    the result and the bodies of all writes.
    """

    def run(found: Experiment | None, *words: str, **options: Any) -> tuple[Result, list[Any]]:
        server = Server(*(one for one in (found,) if one is not None))
        here = client(experiments=Experiments(server))
        for module in ("status", "stop", "rerun"):
            monkeypatch.setattr(f"convoy.cli.experiment.{module}.connect", lambda *_: here)
        return CliRunner().invoke(app, ["experiment", *words], **options), server.writes

    return run


def rows(text: str, first: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(first)]


def test_status_shows_medians_failures_and_verdicts(convoy: Run) -> None:
    result, _ = convoy(experiment(**ENDED), "status", "trial")
    text = result.output
    assert result.exit_code == 0, text
    assert text.startswith("experiment/trial: Succeeded, 4/6 blocks, 1 failed\nVerdictsReady: 1 Supported\n")
    assert f"plan {PLAN}, registered at 2026-01-01 12:00:00Z" in text
    assert f"result {RESULT} in CheckpointStore s3" in text
    assert "unperturbed: 3 of 3 blocks, 1 failed; medians" in text
    assert "lag 60 s: 1 of 3 blocks; medians" in text
    assert rows(text, "fast") == ["fast Candidate 2.25", "fast Candidate 4"]
    assert rows(text, "hpa")[:2] == ["hpa Comparator 5.5 (2 runs)", "hpa Comparator 8"]
    assert "hpa 20 0.5 target=70 (at the edge)" in rows(text, "hpa")
    assert rows(text, "2 ") == ["2 hpa JobFailed exit code 1"]
    assert rows(text, "A/A") == ["A/A passed no difference"]
    assert rows(text, "p ") == [
        "p unperturbed fast better than hpa in late Supported 3.75 2 to 5.5 0.03125 1.5 2"
    ]


def test_status_of_a_running_experiment_names_no_verdict(convoy: Run) -> None:
    text = convoy(experiment(**RUNNING), "status", "trial")[0].output
    assert "Running, 4/6 blocks" in text
    assert "verdicts" not in text and "CheckpointStore" not in text and "controls" not in text
    assert "medians" not in text and rows(text, "fast") == []


def test_status_before_the_operator_has_seen_it(convoy: Run) -> None:
    text = convoy(experiment(), "status", "trial")[0].output
    assert text.startswith("experiment/trial: no operator has reconciled this object; ")
    assert rows(text, "fast") == [] and "lag 60 s: 0 of 3 blocks\n" in text


def test_status_of_a_sweep_counts_runs(convoy: Run) -> None:
    spec = experiment().to_dict()["spec"]
    spec |= {
        "arms": spec["arms"][:1],
        "sweep": {"parameters": [{"name": "x", "path": "x", "values": [1, 2]}]},
    }
    body = {"metadata": {"name": "trial"}, "spec": {**spec, "predictions": None, "perturbations": None}}
    text = convoy(Experiment.model_validate({**body, "status": {"phase": "Running"}}), "status", "trial")[0]
    assert "\nsweep: 0 of 6 runs; medians\n" in text.output


def test_status_without_a_name_lists_all(convoy: Run) -> None:
    listed = rows(convoy(experiment(**ENDED), "status")[0].output, "trial")
    assert listed == ["trial Succeeded 4/6 1 1 Supported - VerdictsReady"]
    assert convoy(None, "status")[0].output == "no experiments in namespace team\n"


def test_stop_asks_and_patches(convoy: Run) -> None:
    result, writes = convoy(experiment(**RUNNING), "stop", "trial", input="n\n")
    assert result.exit_code == 1 and writes == []
    assert "Stop experiment/trial at 4/6 blocks for good?" in result.output
    result, writes = convoy(experiment(**RUNNING), "stop", "trial", "--yes")
    assert result.exit_code == 0 and writes == [{"spec": {"stop": True}}]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (experiment(**ENDED), "has ended (Succeeded): there is nothing to stop"),
        (experiment({"stop": True}, **RUNNING), "has already been stopped: Running"),
    ],
)
def test_stop_is_refused(convoy: Run, found: Experiment, why: str) -> None:
    result, writes = convoy(found, "stop", "trial", "--yes")
    assert result.exit_code == 1 and why in result.output and writes == []
    assert "convoy experiment rerun trial --as OTHER" in result.output


Change = Callable[..., tuple[Result, Server]]


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Return a function that runs a command such as `convoy suspend` in a cluster whose only object is an
    experiment. It returns the result and the server.
    """

    def run(found: Experiment, *words: str, **options: Any) -> tuple[Result, Server]:
        server = Server(found)
        here = client(experiments=Experiments(server))
        monkeypatch.setattr("convoy.cli.change.connect", lambda *_: here)
        return CliRunner().invoke(app, [*words], **options), server

    return run


@pytest.mark.parametrize(
    ("before", "words", "output", "after"),
    [
        (False, ["suspend", "trial"], "experiment/trial starts no more jobs", True),
        (False, ["suspend", "cexp/trial"], "those that run go on to their end", True),
        (True, ["resume", "experiment/trial"], "experiment/trial resumes", False),
    ],
)
def test_an_experiment_is_suspended_and_resumed(
    change: Change, before: bool, words: list[str], output: str, after: bool
) -> None:
    result, server = change(experiment({"suspend": before}, **RUNNING), *words)
    assert result.exit_code == 0 and output in result.output, result.output
    assert server.writes == [{"spec": {"suspend": after}}]


@pytest.mark.parametrize(
    ("found", "verb", "why"),
    [
        (experiment({"suspend": True}, **RUNNING), "suspend", "to go on, run: convoy resume trial"),
        (experiment(**RUNNING), "resume", "is not suspended"),
        (experiment(**ENDED), "suspend", "has ended (Succeeded): there is nothing to suspend"),
        (experiment({"suspend": True}, **ENDED), "resume", "there is nothing to resume"),
        (experiment({"stop": True}, **RUNNING), "suspend", "has already been stopped: Running"),
        (
            experiment({"stop": True, "suspend": True}),
            "resume",
            "has already been stopped: not reconciled yet",
        ),
        (experiment(**RUNNING), "restart", "convoy experiment rerun trial --as OTHER"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    change: Change, found: Experiment, verb: str, why: str
) -> None:
    result, server = change(found, verb, "trial")
    assert result.exit_code == 1 and why in result.output, result.output
    assert server.writes == []


def test_delete_warns_of_blocks_that_are_never_analysed(change: Change) -> None:
    result, server = change(experiment(**RUNNING), "delete", "trial", input="n\n")
    assert result.exit_code == 1 and server.deleted == []
    assert "its blocks will never be analysed (`convoy experiment stop trial` analyses them)" in result.output
    result, server = change(experiment(**ENDED), "delete", "trial", input="y\n")
    assert result.exit_code == 0 and server.deleted == ["trial"]
    assert result.output.startswith("Delete experiment/trial and its jobs? [y/N]")
    assert "experiment/trial deleted" in result.output
    assert change(experiment(**RUNNING), "delete", "trial", "--yes")[1].deleted == ["trial"]


def test_rerun_creates_the_same_plan_under_another_name(convoy: Run) -> None:
    before = experiment({"stop": True, "suspend": True, "seed": 42}, **ENDED)
    result, (made,) = convoy(before, "rerun", "trial", "--as", "again")
    assert result.exit_code == 0, result.output
    assert made["metadata"] == {"name": "again"} and "status" not in made
    assert made["spec"] == {
        name: value for name, value in before.to_dict()["spec"].items() if name not in ("stop", "suspend")
    }
