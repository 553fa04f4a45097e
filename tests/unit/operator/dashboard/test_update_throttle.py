"""Tests of the interval between updates of a page."""

from __future__ import annotations

import pytest

from convoy_operator.dashboard.update_throttle import CPU_SHARE, MIN_SECONDS, UpdateThrottle


@pytest.mark.parametrize(
    ("cost", "pages", "seconds"),
    [
        (0.0, 1, MIN_SECONDS),
        (0.005, 0, MIN_SECONDS),
        (0.005, 1, MIN_SECONDS),
        (0.005, 30, 0.3),
        (0.1, 1, 0.2),
        (0.1, 30, 6.0),
    ],
)
def test_all_pages_together_stay_within_the_processor_share(cost: float, pages: int, seconds: float) -> None:
    throttle = UpdateThrottle()
    for _ in range(200):
        throttle.record_cost(cost)
    assert throttle.interval(pages) == pytest.approx(seconds)
    assert cost * pages / throttle.interval(pages) <= CPU_SHARE * 1.000001


def test_one_slow_update_does_not_change_the_interval() -> None:
    throttle = UpdateThrottle()
    for _ in range(100):
        throttle.record_cost(0.004)
    throttle.record_cost(0.05)
    assert throttle.interval(1) == MIN_SECONDS
