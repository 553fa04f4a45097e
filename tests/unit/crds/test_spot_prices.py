"""Tests of prices over time: unknown and old prices, the cost of an interval, and traces."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_crds.spot_prices import PriceSchedule, parse_trace

HOUR = 3600.0
ON_DEMAND = 1.0


def schedule(*steps: tuple[float, float | None], as_of: float | None = 10 * HOUR) -> PriceSchedule:
    """Return a schedule whose last price counts for an hour after `as_of`."""
    return PriceSchedule(ON_DEMAND, steps, as_of, max_age=HOUR)


def test_a_constant_price_counts_at_all_times() -> None:
    prices = PriceSchedule.constant(0.27, ON_DEMAND)
    assert prices.price(5, now=1e9) == 0.27
    assert prices.cost(0, 2 * HOUR, now=0) == pytest.approx(0.54)


def test_the_cost_follows_the_steps() -> None:
    prices = schedule((0, 0.2), (HOUR, 0.4), (2 * HOUR, 0.6))
    assert prices.cost(0.5 * HOUR, 2.5 * HOUR, now=9 * HOUR) == pytest.approx(0.1 + 0.4 + 0.3)


@pytest.mark.parametrize(
    ("prices", "t", "expected"),
    [
        (schedule((HOUR, 0.2)), 0.0, ON_DEMAND),  # before the first step
        (schedule(), 0.0, ON_DEMAND),  # no step at all
        (schedule((0, 0.2), as_of=None), 1.0, ON_DEMAND),  # read at an unknown time
        (schedule((0, 0.2), (HOUR, None), (2 * HOUR, 0.3)), 1.5 * HOUR, ON_DEMAND),  # a gap
        (schedule((0, 0.2), (HOUR, None), (2 * HOUR, 0.3)), 2 * HOUR, 0.3),
        (schedule((0, 0.2)), 10.9 * HOUR, 0.2),
        (schedule((0, 0.2)), 11 * HOUR, ON_DEMAND),  # too old
    ],
)
def test_an_unknown_price_counts_as_the_on_demand_price(
    prices: PriceSchedule, t: float, expected: float
) -> None:
    assert prices.price(t, now=20 * HOUR) == expected


def test_a_time_of_reading_in_the_future_counts_as_now() -> None:
    prices = schedule((0, 0.2), as_of=1000 * HOUR)
    assert prices.price(5.5 * HOUR, now=5 * HOUR) == 0.2
    assert prices.price(6.5 * HOUR, now=5 * HOUR) == ON_DEMAND


def test_seconds_at_an_unknown_price_are_counted() -> None:
    prices = schedule((HOUR, 0.2), (2 * HOUR, None), (3 * HOUR, 0.3))
    assert prices.unknown_seconds(0, 12 * HOUR, now=20 * HOUR) == pytest.approx(3 * HOUR)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.none() | st.floats(0.01, 2)), max_size=6, unique_by=lambda s: s[0]
    ),
    st.lists(st.floats(0, 60), min_size=3, max_size=3).map(sorted),
)
def test_parts_of_an_interval_cost_as_much_as_the_whole(
    steps: list[tuple[float, float | None]], cuts: list[float]
) -> None:
    prices = PriceSchedule(ON_DEMAND, tuple(sorted(steps)), as_of=40, max_age=5)
    start, middle, end = cuts
    whole = prices.cost(start, end, now=100)
    assert whole == pytest.approx(prices.cost(start, middle, 100) + prices.cost(middle, end, 100))
    assert 0 <= whole <= (end - start) / HOUR * 2 + 1e-12


def test_a_trace_has_times_in_both_forms() -> None:
    trace = parse_trace("time,perHour\n0, 0.3\n1970-01-01T01:00:00Z,0.4\n\n7200,\n9000,0.5\n")
    assert trace.steps == ((0, 0.3), (HOUR, 0.4), (2 * HOUR, None), (9000, 0.5))
    assert trace.problem is not None
    assert trace.problem.gap
    assert str(trace.problem) == "line 5: the row has no price"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the trace has no rows"),
        ("time,perHour\n", "the trace has no rows"),
        ("0,0.3\n0,0.4\n", "line 2: time 0 is not after the time of the row before"),
        ("9,0.3\n8,0.4\n", "line 2: time 8 is not after the time of the row before"),
        ("0,0.3,7\n", "line 1: the row has 3 columns instead of 2, time and perHour"),
        ("soon,0.3\n", "line 1: 'soon' is no time: use RFC 3339 or Unix seconds"),
        ("2026-01-01T00:00:00,0.3\n", "'2026-01-01T00:00:00' is no time: add the time zone, such as Z"),
        ("1767225600000,0.3\n", "line 1: '1767225600000' is no time: use Unix seconds, not milliseconds"),
        ("0,nan\n", "line 1: 'nan' is no price"),
        ("0,0\n", "line 1: '0' is no price"),
        ("0,-1\n", "line 1: '-1' is no price"),
        ("0,cheap\n", "line 1: 'cheap' is no price"),
        ("inf,0.3\n", "line 1: 'inf' is no time"),
    ],
)
def test_a_wrong_trace_has_no_steps_and_names_the_line(text: str, problem: str) -> None:
    trace = parse_trace(text)
    assert trace.steps == ()
    assert problem in str(trace.problem)


def test_a_trace_may_begin_with_a_byte_order_mark() -> None:
    assert parse_trace("\ufefftime,perHour\n0,0.3\n").steps == ((0, 0.3),)


def test_a_schedule_without_an_age_limit_never_ends() -> None:
    assert PriceSchedule(ON_DEMAND, ((0, 0.3),), as_of=0.0).known_until(5.0) == math.inf
