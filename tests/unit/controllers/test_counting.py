"""Tests of the counters of a ledger: counters only grow, and count each second once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.testing.builders import NOW
from convoy_controllers.trainingjob.counting import gains, settled
from convoy_crds.trainingjob_status import Goodput


@pytest.mark.parametrize(
    ("cause", "stepped", "expected"),
    [
        ("restart", None, {"start": 5, "restart": 20}),
        ("restart", 3, {"start": 5, "restart": 20}),
        ("productive", 12, {"start": 5, "productive": 12}),
        ("recompute", 12, {"start": 5, "recompute": 12}),
        # The clock of the rank's node is ahead, so the last step lies in the future.
        ("productive", 30, {"start": 5, "productive": 20}),
        # The last step belongs to the previous incarnation, so none of the productive seconds are settled.
        ("productive", -7, {"start": 5, "productive": 0}),
        ("productive", None, {"start": 5, "productive": 0}),
        # The time since the last step is booked as `finish`. It may turn out to be a hang, so it is not
        # settled.
        ("finish", 12, {"start": 5, "finish": 0}),
        ("", None, {"start": 5}),
    ],
)
def test_time_since_the_last_step_is_not_settled(
    cause: str, stepped: float | None, expected: dict[str, float]
) -> None:
    ledger = Goodput(seconds={"start": 5.0}, cause=cause, since=NOW)
    last = NOW + timedelta(seconds=stepped) if stepped is not None else None
    assert settled(ledger, last, NOW + timedelta(seconds=20)) == expected


@pytest.mark.parametrize(
    ("counted", "ledger", "expected"),
    [
        ({}, {"start": 5.0}, {"start": 5.0}),
        ({"start": 5.0}, {"start": 7.0, "productive": 2.0}, {"start": 2.0, "productive": 2.0}),
        # The ledger moved four seconds from restart to detect, after restart was counted.
        ({"restart": 5.0}, {"restart": 1.0, "detect": 4.0}, {"restart": 0.0, "detect": 0.0}),
        ({"restart": 5.0}, {"restart": 1.0, "detect": 4.0, "productive": 2.0},
         {"restart": 0.0, "detect": pytest.approx(4 / 3), "productive": pytest.approx(2 / 3)}),
        ({"restart": 5.0}, {"restart": 1.0, "detect": 3.0}, {"restart": 0.0, "detect": 0.0}),
        ({"start": 5.0}, {"start": 5.0}, {"start": 0.0}),
    ],
)  # fmt: skip
def test_gains_per_cause(
    counted: dict[str, float], ledger: dict[str, float], expected: dict[str, float]
) -> None:
    assert gains(counted, ledger) == expected


LEDGERS = st.lists(
    st.dictionaries(st.sampled_from(["start", "detect", "productive"]), st.floats(0, 1e6), min_size=1),
    min_size=1,
    max_size=8,
)


@given(ledgers=LEDGERS)
def test_each_second_is_counted_exactly_once(ledgers: list[dict[str, float]]) -> None:
    counted: dict[str, float] = {}
    most = 0.0
    for ledger in ledgers:
        for cause, seconds in gains(counted, ledger).items():
            assert seconds >= 0
            counted[cause] = counted.get(cause, 0.0) + seconds
        most = max(most, sum(ledger.values()))
        assert sum(counted.values()) == pytest.approx(most, abs=1e-3)
