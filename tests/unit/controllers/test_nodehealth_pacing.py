"""Tests of the gain of a job after a swap, and of the time at which the gain is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.nodehealth.observed import HardwareFacts, Suspicion
from convoy_controllers.nodehealth.pacing import (
    FEWEST_WINDOWS,
    NAMED_WINDOWS,
    JobPace,
    Slow,
    error,
    followed,
    paces,
    recovered,
)
from convoy_crds.nodehealth import Action, Outcome, PaceRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE = JobPace("u", 1, 1.5, 0.01, 100, 8, frozenset("abcdefgh"))
ACCUSED = Suspicion("ns/j", NOW, NOW, 1.5, 100.0, "Compute", gain=0.5, beside=("b",), ranks=(3, 4))
OTHER, AGAIN = Slow(frozenset({5}), "Compute", 0.5), Slow(frozenset({4}), "Compute", 0.5)
AFTER = JobPace("u", 2, 1.0, 0.01, FEWEST_WINDOWS, 8, frozenset("xcdefghy"))


def action(**more: Any) -> Action:
    pace = {
        "job": "ns/j",
        "uid": "u",
        "incarnation": 1,
        "ranks": 8,
        "seconds": 1.5,
        "error": 0.01,
        "gain": 0.5,
        "others": ["b"],
        "cause": "Compute",
        "slow": [3, 4],
    }
    return Action(at=NOW, paces=[PaceRecord.model_validate(pace | more)])


def test_pace_stores_the_job_speed_and_other_accused_ranks() -> None:
    assert paces(HardwareFacts(suspicions=(ACCUSED,)), {"ns/j": BEFORE}) == action().paces
    assert paces(HardwareFacts(suspicions=(ACCUSED,)), {}) == []
    small = replace(ACCUSED, gain=0.01)
    assert paces(HardwareFacts(suspicions=(small,)), {"ns/j": BEFORE}) == [], "it would drown in noise"


@pytest.mark.parametrize(
    ("now", "share"),
    [
        (AFTER, 1.0),
        (replace(AFTER, seconds=1.15), 0.7),
        (replace(AFTER, seconds=1.26), None),
        (replace(AFTER, seconds=1.15, error=0.1), None),
        (replace(AFTER, seconds=1.6, windows=NAMED_WINDOWS), -0.2),
        (replace(AFTER, seconds=1.6, windows=NAMED_WINDOWS - 1), None),
        (replace(AFTER, windows=FEWEST_WINDOWS - 1), None),
        (replace(AFTER, incarnation=1), None),
        (replace(AFTER, uid="another"), None),
        (replace(AFTER, ranks=7), None),
        (replace(AFTER, slow=(OTHER,)), 1.0),
        (replace(AFTER, seconds=1.5, slow=(OTHER,)), None),
        (replace(AFTER, seconds=1.5, slow=(AGAIN,)), 0.0),
        (replace(AFTER, seconds=1.5, slow=(OTHER, AGAIN)), 0.0),
        (replace(AFTER, seconds=1.26, slow=(AGAIN,)), 0.0),
        (replace(AFTER, seconds=1.03, slow=(replace(AGAIN, gain=0.03),)), 0.94),
        (replace(AFTER, seconds=1.5, slow=(replace(AGAIN, gain=0.2),)), None),
        (replace(AFTER, seconds=2.5, slow=(replace(AGAIN, gain=1.5),)), None),
        (replace(AFTER, seconds=1.5, slow=(replace(AGAIN, cause="Thermal"),)), None),
        (replace(AFTER, seconds=1.5, slow=(AGAIN,), windows=FEWEST_WINDOWS - 1), None),
        (replace(AFTER, nodes=AFTER.nodes | {"a"}), None),
        (replace(AFTER, nodes=AFTER.nodes | {"b"}), None),
    ],
)
def test_recovered_share_is_known_when_no_other_rank_delays_the_job(
    now: JobPace, share: float | None
) -> None:
    found = recovered(action(), "a", {"ns/j": now})
    assert found == (None if share is None else pytest.approx(share))


def test_job_is_followed_if_its_ranks_are_slow_on_another_node() -> None:
    slow = replace(AFTER, seconds=1.5, slow=(OTHER, AGAIN))
    assert followed(action(), "a", {"ns/j": slow}) == {"ns/j"}
    assert followed(action(), "a", {"ns/j": replace(slow, slow=(OTHER,))}) == frozenset()
    assert followed(action(), "a", {"ns/j": replace(slow, nodes=frozenset("a"))}) == frozenset()


def test_one_recovered_job_suffices_and_a_decided_outcome_stays() -> None:
    both = action()
    both.paces.append(both.paces[0].model_copy(update={"job": "ns/k"}))
    now = {"ns/j": replace(AFTER, seconds=1.5), "ns/k": AFTER}
    assert recovered(both, "a", now) == pytest.approx(1.0)
    assert recovered(both.model_copy(update={"outcome": Outcome.RIGHT}), "a", now) is None
    assert recovered(None, "a", now) is None and recovered(Action(at=NOW), "a", now) is None


def test_error_of_a_median_ignores_outliers() -> None:
    assert error([1.0] * 12) == 0.0
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.08, 0.92, 1.0, 1.03]
    assert 0.01 < error(noisy) < 0.06
    assert error([*noisy, 100.0]) < 2 * error(noisy)
