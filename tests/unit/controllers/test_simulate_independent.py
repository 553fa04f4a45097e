"""Tests of Independent roles in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from convoy_controllers.simulate.replay import replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_crds.trainingjob_status import TrainingJobStatus

EXAMPLE = Path(__file__).parents[3] / "examples" / "scenarios" / "independent.yaml"


def outcome(**program: Any) -> tuple[TrainingJobStatus, dict[str, Any]]:
    """Return the status of the example's job at its end, and the values of its report."""
    scenario = yaml.safe_load(EXAMPLE.read_text())
    scenario["jobs"][0]["program"] |= program
    history = replay(Scenario.model_validate(scenario))
    assert not history.skipped, "every event of the example has a target"
    (result,) = history.results
    return result.job.status, dict(result.report().values)


def test_losses_of_independent_pods_cost_the_training_no_time() -> None:
    status, values = outcome()
    assert (status.phase, status.incarnation, status.restarts.total) == ("Succeeded", 1, 0)
    counts = status.roles[1].independent
    assert counts is not None
    assert (counts.restarts, counts.given_up) == (1, 0)
    assert counts.preemptions >= 2, "the deleted pod, and the pods of the lost node"
    causes = {"productive", "queue", "schedule", "start", "checkpoint"}
    assert {cause for cause, seconds in values["ledgerSeconds"].items() if seconds > 0.1} <= causes


def test_completed_programs_are_not_started_again() -> None:
    status, _ = outcome(independentSeconds=150)
    counts = status.roles[1].independent
    assert counts is not None and counts.completed == 4 and status.phase == "Succeeded"
