"""Tests of the values that are read from the status of a run's job."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.experiment.outcomes import Readings, figures, missing, why_missing
from convoy_crds.experiment_plan import Outcome


def outcome(**source: Any) -> Outcome:
    body = {"name": "lost", "better": "Lower", "source": {"status": "goodput.seconds.recompute", **source}}
    return Outcome.model_validate(body)


@pytest.mark.parametrize(
    ("seconds", "expected"), [({"recompute": 2.5}, 2.5), ({}, 0.0), ({"recompute": "many"}, None)]
)
def test_an_absent_field_may_stand_for_a_value_but_a_wrong_one_never(
    seconds: dict[str, Any], expected: float | None
) -> None:
    readings = Readings({"goodput": {"seconds": seconds}})
    one = outcome(absentAs=0)
    assert [found.value for found in figures([one], "arm", readings)] == (
        [] if expected is None else [expected]
    )
    assert (missing([one], readings) is None) is (expected is not None)


@pytest.mark.parametrize(("value", "counts"), [(1e100, True), (1.1e100, False), (-1e101, False)])
def test_a_value_that_the_analysis_would_not_count_is_a_failure(value: float, counts: bool) -> None:
    one = Outcome.model_validate({"name": "x", "better": "Lower", "source": {"metric": "x"}})
    assert (missing([one], Readings({}, {"x": value})) is None) is counts


def test_an_absent_field_is_a_failure_otherwise() -> None:
    assert missing([outcome()], Readings({"goodput": {"seconds": {}}})) is not None


@pytest.mark.parametrize(
    ("source", "readings", "why"),
    [
        (
            {"status": "phase"},
            {"status": {"phase": "Succeeded"}},
            "status.phase of the job is no number, but",
        ),
        ({"status": "goodput.ratio"}, {"status": {}}, "status.goodput.ratio of the job is absent or NaN"),
        (
            {"metric": "best"},
            {"status": {}, "result": {"best": "adam"}},
            "metric 'best' of the job is no number",
        ),
        ({"metric": "best"}, {"status": {}, "result": {"best": True}}, "is no number, but 'True'"),
        (
            {"load": "p99Ms"},
            {"status": {}, "load": {"p99Ms": 10**400}},
            "in the load's report is not between -1e+",
        ),
        ({"load": "p99Ms"}, {"status": {}, "load": {"p99Ms": float("nan")}}, "is absent or NaN"),
    ],
)
def test_a_missing_value_has_a_reason(source: dict[str, Any], readings: dict[str, Any], why: str) -> None:
    one = Outcome.model_validate({"name": "x", "better": "Lower", "source": source})
    found = Readings(**readings)
    assert missing([one], found) is one
    assert why in why_missing(one, found)


def test_a_text_is_a_failure_even_if_absent_values_are_censored() -> None:
    one = Outcome.model_validate(
        {"name": "x", "better": "Lower", "source": {"metric": "best"}, "censoredAt": 9.0}
    )
    assert missing([one], Readings({}, {"best": "adam"})) is one
    (censored,) = figures([one], "arm", Readings({}, {"best": None}))
    assert (censored.value, censored.censored) == (9.0, True)
