"""Tests of the job states that permit suspend, resume and restart."""

from __future__ import annotations

import pytest

from convoy.client.job_actions import refusal
from convoy_crds.trainingjob import TrainingJob


def job(phase: str | None = "Running", suspend: bool = False) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job"},
            "spec": {"roles": [{"name": "w", "replicas": 1}], "suspend": suspend},
            "status": {"phase": phase},
        }
    )


@pytest.mark.parametrize(
    ("about", "verb", "words"),
    [
        (job(), "suspend", ""),
        (job(), "restart", ""),
        (job(), "resume", "is not suspended: Running"),
        (job("Suspended", suspend=True), "resume", ""),
        (job("Suspended", suspend=True), "suspend", "is already suspended"),
        (job("Suspended", suspend=True), "restart", "is suspended: `convoy resume job`"),
        (job("Succeeded"), "restart", "has ended (Succeeded): there is nothing to restart"),
        (job("Failed"), "suspend", "has ended (Failed)"),
        (job("Failed", suspend=True), "resume", "has ended (Failed)"),
        (job(None), "suspend", ""),
    ],
)
def test_actions_not_permitted_in_the_state_are_refused(about: TrainingJob, verb: str, words: str) -> None:
    found = refusal(about, verb)
    assert words in found if found else not words
