from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.plot import curve


def test_falling_values_are_drawn_as_a_falling_line() -> None:
    drawn = curve([(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)], "loss", width=4, height=4).splitlines()
    assert drawn == [
        "loss",
        "        4 |*",
        "          | *",
        "          |  *",
        "        1 |   *",
        "          +----",
        "           1  4",
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.floats(allow_nan=True, allow_infinity=True, width=32)),
        max_size=50,
    )
)
def test_any_values_are_drawn_within_the_frame(points: list[tuple[float, float]]) -> None:
    drawn = curve(sorted(points, key=lambda point: point[0]), width=30, height=5)
    finite = [y for _, y in points if math.isfinite(y)]
    assert bool(drawn) == bool(finite)
    assert all(len(line) <= 11 + 30 for line in drawn.splitlines()[:-1])
