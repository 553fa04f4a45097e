"""Tests of medians, targets and baselines of figures."""

from __future__ import annotations

import pytest

from convoy_workloads.bench.figures import Figures, Metric


def rows(*values, target=None, baseline=""):
    figures = Figures()
    for value in values:
        figures.add(Metric("it", "seconds", target, baseline), value)
    return figures


def test_the_median_is_compared_with_the_target():
    row = rows(1.0, 9.0, 2.0, target=2.0).row("it")
    assert (row["value"], row["met"], row["spread"]) == (2.0, True, "1.0 to 9.0, n=3")
    assert rows(1.0, 9.0, 2.1, target=2.0).row("it")["met"] is False
    assert rows(1.0).row("it")["met"] is None


def test_an_event_that_did_not_happen_counts_as_latest():
    row = rows(1.0, None, None, target=2.0).row("it")
    assert (row["value"], row["met"]) == (None, False)
    assert row["spread"] == "1.0 to 1.0, n=3, 2 of them not within the time limit"
    assert rows(1.0, 2.0, None).row("it")["value"] == 2.0


def test_the_baseline_is_another_metric_of_the_same_run():
    figures = rows(2.0, baseline="theirs")
    assert figures.row("it")["baseline"] is None
    figures.add(Metric("theirs", "seconds"), 5.0)
    row = figures.row("it")
    assert (row["baseline"], row["ratio"]) == (5.0, 2.5)
    assert [one["metric"] for one in figures.rows()] == ["it", "theirs"]


@pytest.mark.parametrize(("value", "shown"), [(0.0, 0.0), (0.012345, 0.0123), (1.2345, 1.23), (1234.4, 1234)])
def test_values_have_three_significant_digits(value, shown):
    assert rows(value).row("it")["value"] == shown


def test_an_unmeasured_metric_has_a_reason():
    figures, others = Figures(), Figures()
    others.add_unmeasured(Metric("it", "x", 2.0), "there is none")
    figures.merge(others)
    (row,) = figures.rows()
    assert (row["value"], row["met"], row["kind"]) == (None, None, "not measured: there is none")
    assert row["spread"] == "n=0"


@pytest.mark.parametrize(("value", "met"), [(0.79, False), (0.8, True), (3.0, True), (None, False)])
def test_a_target_may_be_a_lower_limit(value, met):
    figures = Figures()
    figures.add(Metric("it", "x", 0.8, higher_is_better=True), value)
    assert figures.row("it")["met"] is met


@pytest.mark.parametrize(
    ("aim", "values", "met"),
    [
        ("equal", (4, 4), True),
        ("equal", (4, 3), False),
        ("equal", (5,), False),
        ("equal", (None,), False),
        ("equal", (), None),
        ("within", (-4.5,), False),
        ("within", (-4.0,), True),
        ("within", (4.5,), False),
        ("within", (None,), False),
        ("limit", (-9,), True),
    ],
)
def test_a_target_may_be_an_exact_value_or_a_distance(aim, values, met):
    figures, metric = Figures(), Metric("it", "x", 4.0, aim=aim)
    for value in values:
        figures.add(metric, value)
    if not values:
        figures.add_unmeasured(metric, "there is none")
    assert figures.row("it")["met"] is met


@pytest.mark.parametrize(
    ("value", "verdict", "met"), [(0.9, True, True), (0.9, False, False), (0.7, True, False)]
)
def test_a_target_with_a_test_needs_both(value, verdict, met):
    figures = Figures()
    figures.add(Metric("it", "x", 0.8, higher_is_better=True, verdict=verdict), value)
    assert figures.row("it")["met"] is met
