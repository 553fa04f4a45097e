"""Tests of the values that are read from the status of a run's job."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.experiment.outcomes import Readings, figures, missing
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


def test_an_absent_field_is_a_failure_otherwise() -> None:
    assert missing([outcome()], Readings({"goodput": {"seconds": {}}})) is not None
