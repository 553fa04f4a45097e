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


SERVING = """
nodes: [{name: node-0}, {name: node-1}]
jobs:
  - job:
      kind: ServingJob
      metadata: {name: llm}
      spec: {roles: [{name: server, engine: {name: lm}}]}
    program: {loadSeconds: 1}
traffic: [{job: llm, from: 15, to: 35, rate: 10}]
events: [{at: 20, do: edit, job: llm, spec: {rollout: {maxSurge: 1}}}]
until: 40
"""


def test_requests_of_a_serving_job_are_in_both_outputs() -> None:
    text = CliRunner().invoke(app, ["simulate", "-"], input=SERVING).output
    assert "REQUESTS" in text and "llm: RolloutComplete, 1/1 replicas ready" in text
    (job,) = json.loads(CliRunner().invoke(app, ["simulate", "-", "-o", "json"], input=SERVING).output)[
        "jobs"
    ]
    assert job["requests"]["ok"] > 100 and job["requests"]["lost"] == 0 and job["requests"]["p95Ms"] > 0
    assert [one["result"] for one in job["rollouts"]] == ["complete"]


def test_an_edit_that_breaks_a_rule_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SERVING.replace("maxSurge: 1", "maxSurge: 0, maxUnavailable: 0"))
    with pytest.raises(Failure, match=r"events\[0\]: spec.rollout.maxSurge: .* must not both be 0"):
        load(path)
