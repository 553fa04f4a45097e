"""Tests of the validation of resumeFrom, with which a job starts from another job's state."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy.cli.rules import broken_rules
from convoy_crds import trainingjob
from convoy_crds.trainingjob import TrainingJob

STORE = {"local": {}, "remote": {"store": "s3"}}


def job(**checkpoint: Any) -> TrainingJob:
    spec = {"engine": {"name": "gpt"}, "roles": [{"name": "w", "replicas": 1}], "checkpoint": checkpoint}
    return TrainingJob.model_validate({"metadata": {"name": "j"}, "spec": spec})


@pytest.mark.parametrize(
    ("checkpoint", "word"),
    [
        ({"tiers": STORE, "resumeFrom": {"job": "other"}}, ""),
        ({"tiers": STORE, "resumeFrom": {"uid": "0a-1b", "step": 200}}, ""),
        ({"tiers": STORE, "resumeFrom": {}}, "exactly one of job and uid"),
        ({"tiers": STORE, "resumeFrom": {"job": "other", "uid": "0a"}}, "exactly one of job and uid"),
        ({"tiers": {"local": {}}, "resumeFrom": {"job": "other"}}, "tiers.remote.store"),
        ({"resumeFrom": {"job": "other"}}, "tiers.remote.store"),
    ],
)
def test_resume_from_rules_are_validated(checkpoint: Any, word: str) -> None:
    broken = broken_rules(trainingjob.KIND, job(**checkpoint).to_dict())
    assert (len(broken), word in "".join(broken)) == (bool(word), True)


@pytest.mark.parametrize(
    "wrong", [{"job": "No Name"}, {"uid": "../other"}, {"uid": ""}, {"uid": "a", "step": -1}]
)
def test_an_invalid_resume_source_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        job(tiers=STORE, resumeFrom=wrong)
