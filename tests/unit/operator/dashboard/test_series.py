"""Tests of curves: they are bounded and keep their first and newest values."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isnan

import pytest
from tests.unit.operator.dashboard.builders import NOW

from convoy_crds.trainingjob_status import Progress
from convoy_operator.dashboard.core import charts
from convoy_operator.dashboard.core.series import POINTS, Curve, Curves


def progress(step: int, loss: float | None = 1.0) -> Progress:
    return Progress(step=step, loss=loss, time=at(step))


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_curve_is_bounded_and_keeps_its_first_and_last_point() -> None:
    curve = Curve(NOW)
    for step in range(20_000):
        curve.add(progress(step, loss=float(step)), at(step))
        assert len(curve.times) <= POINTS + 1
        assert (curve.steps[0], curve.steps[-1], curve.losses[-1]) == (0.0, float(step), float(step))
    assert len(curve.times) >= POINTS // 2
    gaps = {curve.steps[one + 1] - curve.steps[one] for one in range(len(curve.steps) - 2)}
    assert max(gaps) <= 2 * curve.stride
    assert list(curve.times) == sorted(set(curve.times))


def test_points_without_a_loss_are_complete() -> None:
    curve = Curve(NOW)
    for step in range(3 * POINTS):
        curve.add(progress(step, loss=None), at(step))
        lengths = {len(part) for part in (curve.times, curve.steps, curve.losses, curve.rates)}
        assert len(lengths) == 1, f"after {step} steps"
    assert charts.line(curve, "losses", "", "#000")["series"][0]["data"] == []


@pytest.mark.parametrize("values", [[], [2.5]])
def test_a_chart_without_values_shows_a_text_in_place_of_its_axes(values: list[float]) -> None:
    curve = Curve(NOW)
    for step, loss in enumerate(values):
        curve.add(progress(step, loss), at(step))
    for drawn in (charts.line(curve, "losses", "", "#000"), charts.progress(curve)):
        shown = (drawn["title"]["show"], drawn["xAxis"]["show"], drawn["yAxis"]["show"])
        assert shown == ((False, True, True) if values else (True, False, False))
        assert drawn["title"]["text"] == charts.NO_VALUES


def test_small_values_keep_their_digits() -> None:
    curve = Curve(NOW)
    for step, loss in enumerate((4e-7, 1.23456789, 123456.789, -2e-9, 0.0)):
        curve.add(progress(step, loss), NOW)
    drawn = [value for _, value in charts.line(curve, "losses", "", "#000")["series"][0]["data"]]
    assert drawn == [4e-7, 1.23457, 123457.0, -2e-9, 0.0]


def test_a_repeated_report_is_ignored() -> None:
    curve = Curve(NOW)
    assert curve.add(progress(1), at(1))
    assert not curve.add(progress(1), at(9))
    assert curve.add(Progress(step=2), at(9))
    assert isnan(curve.losses[-1]) and isnan(curve.rates[-1])
    assert not curve.add(Progress(step=2), at(20))
    assert list(curve.times) == [at(1).timestamp(), at(9).timestamp()]


@pytest.mark.parametrize(
    ("first", "since"), [(at(-3600), at(-3600)), (at(5), at(0)), (at(900), at(0)), (None, at(0))]
)
def test_a_curve_does_not_start_before_its_recorded_start(first: datetime | None, since: datetime) -> None:
    """Record a first report with a time before or after the dashboard's start. The curve must start at the
    earlier of the two, and none of its times may be before the start.
    """
    curve = Curve(at(0))
    curve.add(Progress(step=1, time=first), at(10))
    curve.add(Progress(step=2, time=at(-1800)), at(20))
    assert curve.since == since
    assert curve.times[0] >= since.timestamp()


@pytest.mark.parametrize(
    ("reports", "times"),
    [
        pytest.param([(10, 11), (20, 22)], [10, 20], id="as told"),
        pytest.param([(3600, 10), (11, 12), (20, 21)], [10, 11, 20], id="from a clock that was ahead"),
        pytest.param([(10, 10), (5, 12), (20, 20)], [10, 12, 20], id="from a clock that is behind"),
        pytest.param([(10, 10), (None, 12), (11, 13), (14, 14)], [10, 12, 13, 14], id="one told no time"),
        pytest.param([(10, 10), (20, 5), (21, 22)], [10, 10, 21], id="the dashboard's own clock went back"),
    ],
)
def test_a_wrong_clock_does_not_hide_later_reports(
    reports: list[tuple[float | None, float]], times: list[float]
) -> None:
    curve = Curve(NOW)
    for step, (reported, seen) in enumerate(reports):
        when = at(reported) if reported is not None else None
        assert curve.add(Progress(step=step, time=when), at(seen))
    assert list(curve.steps) == list(range(len(reports)))
    assert list(curve.times) == [at(seconds).timestamp() for seconds in times]


def test_progress_stays_level_and_falls_at_a_restart() -> None:
    curve = Curve(NOW)
    for step, seconds in ((90, 0), (100, 10), (81, 7210), (91, 7220)):
        curve.add(Progress(step=step, time=at(seconds)), at(seconds))
    drawn = charts.progress(curve)
    [series] = drawn["series"]
    start = round(1000 * NOW.timestamp())
    assert [[(time - start) / 1000, step] for time, step in series["data"]] == [
        [0, 90], [10, 100], [7210, 100], [7210, 81], [7220, 91]
    ]  # fmt: skip
    assert drawn["xAxis"]["type"] == "time" and drawn["useUTC"]
    assert charts.progress(None)["series"][0]["data"] == []


def test_the_job_with_the_oldest_value_is_dropped() -> None:
    curves = Curves(jobs=2)
    assert curves.record("a", progress(1), NOW)
    curves.record("b", progress(1), NOW)
    curves.record("a", progress(2), NOW)
    curves.record("c", None, NOW)
    assert [curves.get(one) is not None for one in "abc"] == [True, False, True]
    curves.remove("a")
    assert len(curves) == 1


def test_a_chart_leaves_out_missing_values() -> None:
    curve = Curve(NOW)
    curve.add(progress(1, loss=2.5), NOW)
    curve.add(progress(2, loss=None), NOW)
    assert charts.line(curve, "losses", "", "#000")["series"][0]["data"] == [[1.0, 2.5]]
    assert charts.line(None, "rates", "", "#000")["series"][0]["data"] == []


def test_tooltips_are_drawn_and_never_parsed() -> None:
    for options in (charts.line(None, "losses", "", "#000"), charts.progress(None), charts.strips(())):
        assert options["tooltip"]["renderMode"] == "richText"
