"""Tests of the choice of the save interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.checkpoint.interval import BUDGET, MAX_SECONDS, choose, failure_rate, young_daly


def lost(interval: float, cost: float, mtbf: float) -> float:
    """Return the fraction of time lost to saves and to repeated work, to first order (Daly 2006)."""
    return cost / interval + interval / (2 * mtbf)


@pytest.mark.parametrize(
    ("cost", "mtbf", "seconds"), [(1.0, 3600.0, 84.2), (0.05, 86400.0, 92.9), (60, 3600, 615)]
)
def test_young_and_daly(cost: float, mtbf: float, seconds: float) -> None:
    assert young_daly(cost, mtbf) == pytest.approx(seconds, rel=0.02)


@given(st.floats(0.01, 100), st.floats(1000, 1e6))
def test_double_or_half_the_interval_is_not_better(cost: float, mtbf: float) -> None:
    best = young_daly(cost, mtbf)
    assert lost(best, cost, mtbf) <= 1.1 * min(lost(2 * best, cost, mtbf), lost(best / 2, cost, mtbf))


def test_interval_is_at_most_the_mean_time_between_failures() -> None:
    assert young_daly(100, 40) == 40


@pytest.mark.parametrize(
    ("cost", "rate", "busy", "seconds", "why"),
    [
        (0.4, 1 / 24, 0.0, 263, "a failure is expected every 24.0 h"),
        (10.0, 60.0, 0.0, 10 / BUDGET, "may cost 3.5% of the time"),
        (0.01, 1 / 24, 100.0, 100, "copying a save takes 100.0 s"),
        (100.0, 1e-4, 0.0, MAX_SECONDS, "never more than 30 min"),
        (0.0001, 1000.0, 0.0, 1.0, "a save stalls for 0 ms"),
    ],
)
def test_interval_contains_its_reason(
    cost: float, rate: float, busy: float, seconds: float, why: str
) -> None:
    found = choose(cost, rate, busy)
    assert found.seconds == pytest.approx(seconds, rel=0.01) and why in found.reason


def test_observed_failures_outweigh_the_assumed_rate() -> None:
    assert failure_rate(0, 0) == pytest.approx(1 / 24)
    assert failure_rate(99, 76) == pytest.approx(1.0)
