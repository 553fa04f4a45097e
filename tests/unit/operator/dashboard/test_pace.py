"""How far apart the updates of a page are."""

from __future__ import annotations

import pytest

from convoy_operator.dashboard.pace import LEAST, SHARE, Pace


@pytest.mark.parametrize(
    ("cost", "pages", "seconds"),
    [
        (0.0, 1, LEAST),
        (0.005, 0, LEAST),
        (0.005, 1, LEAST),
        (0.005, 30, 0.3),
        (0.1, 1, 0.2),
        (0.1, 30, 6.0),
    ],
)
def test_all_pages_together_take_no_more_than_their_share(cost: float, pages: int, seconds: float) -> None:
    pace = Pace()
    for _ in range(200):
        pace.spent(cost)
    assert pace.spacing(pages) == pytest.approx(seconds)
    assert cost * pages / pace.spacing(pages) <= SHARE * 1.000001


def test_one_costly_update_among_cheap_ones_slows_nobody_down() -> None:
    pace = Pace()
    for _ in range(100):
        pace.spent(0.004)
    pace.spent(0.05)
    assert pace.spacing(1) == LEAST
