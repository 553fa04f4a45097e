"""How a job is told of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from convoy_crds.telling import restarts_in_window
from convoy_crds.trainingjob import TrainingJob

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds_ago", "counted"),
    [([], 0), ([59], 1), ([60], 0), ([61], 0), ([600, 61, 59, 1], 2)],
)
def test_restarts_are_counted_while_the_window_holds_them(seconds_ago: list[int], counted: int) -> None:
    times = [(NOW - timedelta(seconds=one)).isoformat() for one in seconds_ago]
    body = {
        "metadata": {"name": "job"},
        "spec": {"roles": [{"name": "w", "replicas": 1}], "recovery": {"windowSeconds": 60}},
        "status": {"restarts": {"total": 9, "inWindow": 7, "times": times}},
    }
    assert restarts_in_window(TrainingJob.model_validate(body), NOW) == counted
