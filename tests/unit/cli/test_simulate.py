"""Tests of the command `convoy simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.cluster import Failure
from convoy.cli.simulate import load
from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.violation import InvariantViolation

EXAMPLE = Path(__file__).parents[3] / "examples" / "scenarios" / "crash-loop.yaml"


def test_the_text_output_has_the_events_and_the_times() -> None:
    result = CliRunner().invoke(app, ["simulate", str(EXAMPLE)])
    assert result.exit_code == 0, result.output
    assert "broken: Failed RepeatedError" in result.output
    assert "CAUSE" in result.output and "productive" in result.output


def test_json_output_has_the_whole_result() -> None:
    result = CliRunner().invoke(app, ["simulate", str(EXAMPLE), "-o", "json", "--seed", "3"])
    found = json.loads(result.output)
    assert found["jobs"][0]["status"]["reason"] == "RepeatedError"
    assert set(found["jobs"][0]["ledgerSeconds"]) >= {"productive", "recompute", "restart"}
    assert found["lines"][0]["at"] >= 0 and found["droppedLines"] == 0


def test_a_scenario_is_read_from_standard_input() -> None:
    result = CliRunner().invoke(app, ["simulate", "-"], input=EXAMPLE.read_text())
    assert "RepeatedError" in result.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: [", "line 1"),
        ("- 1\n", "one YAML document"),
        ("", "one YAML document"),
        ("nodes: [{name: a}]\n", "jobs: Field required"),
        ("nodes: [{name: A}]\njobs: []\n", r"nodes\[0\].name"),
        (
            EXAMPLE.read_text().replace("replicas: 2\n", "replicas: 2\n            minReplicas: 5\n"),
            r"jobs\[0\].job: spec.roles\[0\].minReplicas: minReplicas must not exceed replicas",
        ),
        (EXAMPLE.read_text().replace("recovery:", "success: nobody\n        recovery:"), "success"),
    ],
)
def test_an_invalid_scenario_is_refused_with_the_place_of_the_error(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(Failure, match=words):
        load(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file"):
        load(tmp_path / "absent.yaml")


def test_a_violated_invariant_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def violate(*_: object) -> None:
        raise InvariantViolation("two processes")

    monkeypatch.setattr(InvariantChecker, "check", violate)
    result = CliRunner().invoke(app, ["simulate", str(EXAMPLE)])
    assert result.exit_code != 0
