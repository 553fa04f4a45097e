"""Tests of the texts that summarize a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from convoy_crds.summaries import restarts_in_window, shorten_list
from convoy_crds.trainingjob import TrainingJob

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds_ago", "counted"),
    [([], 0), ([59], 1), ([60], 0), ([61], 0), ([600, 61, 59, 1], 2)],
)
def test_only_restarts_inside_the_window_are_counted(seconds_ago: list[int], counted: int) -> None:
    times = [(NOW - timedelta(seconds=one)).isoformat() for one in seconds_ago]
    body = {
        "metadata": {"name": "job"},
        "spec": {"roles": [{"name": "w", "replicas": 1}], "recovery": {"windowSeconds": 60}},
        "status": {"restarts": {"total": 9}, "internal": {"restarts": {"times": times}}},
    }
    assert restarts_in_window(TrainingJob.model_validate(body), NOW) == counted


@pytest.mark.parametrize(
    ("names", "most", "expected"),
    [
        ([], 2, ""),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (["a"], 3, "a"),
        (["a", "b", "c"], 3, "a, b, c"),
        (["a", "b", "c", "d"], 3, "a, b, c and 1 more"),
    ],
)
def test_a_long_list_of_names_is_shortened(names: list[str], most: int, expected: str) -> None:
    assert shorten_list(names, most) == expected
