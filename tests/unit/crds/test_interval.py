"""Tests of the validation of a job's checkpoint interval."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy.cli.rules import broken_rules
from convoy_crds import trainingjob
from convoy_crds.generate import definition
from convoy_crds.trainingjob import TrainingJob

LOCAL: dict[str, Any] = {"local": {}}
REMOTE: dict[str, Any] = {**LOCAL, "remote": {"store": "s"}}


def job(**checkpoint: Any) -> TrainingJob:
    spec = {
        "engine": {"name": "gpt"},
        "roles": [{"name": "w", "replicas": 1}],
        "checkpoint": checkpoint,
    }
    return TrainingJob.model_validate({"metadata": {"name": "j"}, "spec": spec})


@pytest.mark.parametrize(
    ("checkpoint", "automatic", "seconds"),
    [
        ({}, False, 300),
        ({"interval": "90s"}, False, 90),
        ({"interval": "2h", "tiers": LOCAL}, False, 7200),
        ({"interval": "Auto", "tiers": LOCAL}, True, 300),
        ({"interval": "Auto", "tiers": REMOTE}, True, 300),
    ],
)
def test_an_interval_is_parsed_into_the_initial_seconds(
    checkpoint: Any, automatic: bool, seconds: int
) -> None:
    read = job(**checkpoint).spec.checkpoint
    assert (read.automatic, read.interval_seconds) == (automatic, seconds)


@pytest.mark.parametrize("interval", ["auto", "AUTO", "Auto5m", "5m Auto", "", "0s", "5 minutes", "1.5h"])
def test_an_invalid_interval_is_refused(interval: str) -> None:
    with pytest.raises(ValidationError, match="interval"):
        job(interval=interval)


@pytest.mark.parametrize(
    ("checkpoint", "good"),
    [
        ({"interval": "5m"}, True),
        ({"interval": "Auto", "tiers": LOCAL}, True),
        ({"interval": "Auto", "tiers": REMOTE}, True),
        ({"interval": "Auto"}, False),
        ({"interval": "Auto", "tiers": {}}, False),
    ],
)
def test_interval_auto_needs_a_memory_tier(checkpoint: Any, good: bool) -> None:
    broken = broken_rules(trainingjob.KIND, job(**checkpoint).to_dict())
    if good:
        assert broken == []
    else:
        assert [one.split(" needs the measured ")[0] for one in broken] == [
            "spec.checkpoint.interval: interval Auto"
        ]
        assert "add tiers.local: {}" in broken[0]


def test_the_schema_has_the_interval_as_a_string() -> None:
    schema = definition(trainingjob.KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]["checkpoint"]["properties"]["interval"]
    assert (spec["type"], spec["default"]) == ("string", "5m")
    assert spec["pattern"] == r"^(Auto|[1-9][0-9]*(s|m|h))$"
    status = schema["properties"]["status"]["properties"]["checkpoint"]["properties"]["interval"]
    assert set(status["properties"]) == {"seconds", "reason"}
