"""Tests of the phases and conditions that end a wait for a job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.crds.experiments import make_experiment

from convoy.client.errors import JobEnded, JobFailed
from convoy.client.waiting import (
    CONDITIONS,
    SERVING_CONDITIONS,
    check_target,
    describe,
    experiment_end,
    has_reached,
    serving,
)
from convoy_crds.experiment import Experiment
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob

SINCE = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str = "True", reason: str = "R", message: str = "m") -> dict[str, str]:
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE
    }  # fmt: skip


def job(
    phase: str | None, *conditions: Any, generation: int = 1, seen: int = 1, **status: Any
) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job", "generation": generation},
            "spec": {"roles": [{"name": "w", "replicas": 1}]},
            "status": {"phase": phase, "conditions": conditions, "observedGeneration": seen, **status},
        }
    )


@pytest.mark.parametrize(
    ("about", "until", "answer"),
    [
        (job("Running"), "Running", True),
        (job("Running"), "Complete", False),
        (job(None), "Running", False),
        (job("Pending", condition("Valid")), "Valid", True),
        (job("Pending", condition("Valid", "False")), "Valid", False),
        (job("Succeeded", condition("Complete")), "Complete", True),
        (job("Succeeded", condition("Complete")), "Succeeded", True),
        (job("Failed", condition("Failed")), "Failed", True),
        # The condition belongs to an earlier spec, so it may describe the job before a requested restart.
        (job("Running", generation=3, seen=2), "Running", False),
        (job("Running", generation=3, seen=3), "Running", True),
        # An ended job does not change any more, so its status counts although the spec is newer.
        (job("Succeeded", condition("Complete"), generation=3, seen=2), "Complete", True),
    ],
)
def test_a_phase_or_a_condition_is_waited_for(about: TrainingJob, until: str, answer: bool) -> None:
    assert has_reached(about, until) is answer


def test_a_failed_job_raises_with_the_full_message() -> None:
    about = job(
        "Failed", condition("Failed", reason="RepeatedError", message="all of it"),
        reason="RepeatedError", message="all ...",
    )  # fmt: skip
    with pytest.raises(JobFailed, match=r"^job failed: RepeatedError: all of it$") as raised:
        has_reached(about, "Complete")
    assert (raised.value.reason, raised.value.message) == ("RepeatedError", "all of it")
    assert raised.value.job is about


def test_a_job_without_the_condition_raises_with_the_status_message() -> None:
    with pytest.raises(JobFailed, match="InvalidSpec: cut"):
        has_reached(job("Failed", reason="InvalidSpec", message="cut"), "Running")


def test_an_ended_job_ends_the_wait() -> None:
    with pytest.raises(JobEnded, match=r"job has ended \(Succeeded\) and will not be Running") as raised:
        has_reached(job("Succeeded", condition("Complete")), "Running")
    assert not isinstance(raised.value, JobFailed)


@pytest.mark.parametrize(
    ("until", "words"),
    [("Completed", "did you mean 'Complete'"), ("x", "'x' is neither a phase nor a condition")],
)
def test_an_unknown_phase_or_condition_is_refused(until: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_target(until)


def test_every_condition_of_a_job_may_be_waited_for() -> None:
    """A wait accepts all conditions of a job and no conditions of other kinds. If this test fails, add the
    new condition to one of the lists.
    """
    others = {
        ConditionType.READY,
        ConditionType.QUALIFIED,
        ConditionType.ACTING,
        ConditionType.REGISTERED,
        ConditionType.PLAN_KEPT,
        ConditionType.STOPPED_EARLY,
        ConditionType.SPOT_AVAILABLE,
        ConditionType.PRICE_KNOWN,
        ConditionType.WITHIN_BUDGET,
        ConditionType.NOTICES_RELIABLE,
    }
    every = {value for name, value in vars(ConditionType).items() if name.isupper()}
    assert every == CONDITIONS | SERVING_CONDITIONS | others
    for one in CONDITIONS:
        check_target(one)
    for one in SERVING_CONDITIONS:
        assert serving(one).name == one


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (job(None), "no operator has reconciled it yet"),
        (
            job("Running", reason="Training", message="2 ranks run", progress={"step": 4}),
            "it is Running at step 4 (Training): 2 ranks run",
        ),
        (job("Running", generation=2), "it is Running; the operator has not reconciled its newest spec yet"),
    ],
)
def test_a_state_is_described(about: TrainingJob, words: str) -> None:
    assert describe(about) == words


@pytest.mark.parametrize(
    ("status", "ended", "words"),
    [
        ({}, False, "no operator has reconciled it yet"),
        ({"phase": "Running", "progress": "4/9"}, False, "it is Running, 4/9 blocks have ended"),
        (
            {"phase": "Pending", "reason": "R", "message": "m"},
            False,
            "it is Pending, no blocks have ended (R): m",
        ),
        ({"phase": "Failed"}, True, "it is Failed"),
        ({"phase": "Invalid"}, True, "it is Invalid"),
        ({"phase": "Succeeded"}, True, "it is Succeeded"),
    ],
)
def test_the_end_of_an_experiment_is_waited_for(status: dict[str, Any], ended: bool, words: str) -> None:
    found = Experiment.model_validate({**make_experiment().to_dict(), "status": status})
    goal = experiment_end()
    assert goal.reached(found) is ended and goal.describe(found).startswith(words)
