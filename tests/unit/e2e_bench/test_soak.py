"""Tests of the soak's account of lost requests, and of the provider that waits for the API server."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.bench.soak import spot
from e2e.bench.soak.serving import Kill, Serving, lost_beyond_in_flight, soon_after
from e2e.cluster.errors import ClusterError
from e2e.drive.spotlight_job import trace

from convoy_workloads.bench.figures import Figures
from convoy_workloads.spot.trace import SpotTrace

STARTED = 1000.0


def failure(at: float, outcome: str = "lost", seconds: float = 2.0) -> dict[str, Any]:
    return {"atSeconds": at, "endSeconds": at + seconds, "outcome": outcome, "cause": "a broken connection"}


def kill(at: float) -> Kill:
    """Return a kill that took a tenth of a second."""
    return Kill(STARTED + at, STARTED + at + 0.1)


@pytest.mark.parametrize(
    ("at", "kills", "lost"),
    [
        (10.0, [], 1),
        (10.0, [10.5], 0),  # in flight at the kill
        (10.0, [12.5], 1),  # had ended before the kill
        (11.0, [10.5], 1),  # arrived after the kill
        (10.0, [50.0, 11.0], 0),
    ],
)
def test_only_a_kill_during_a_request_explains_its_loss(at: float, kills: list[float], lost: int) -> None:
    assert len(lost_beyond_in_flight([failure(at)], STARTED, map(kill, kills))) == lost


def test_a_request_that_was_shed_is_not_lost() -> None:
    found = lost_beyond_in_flight([failure(1, "shed"), failure(2, "failed")], STARTED, [])
    assert [one["outcome"] for one in found] == ["failed"]


def test_failures_beyond_the_listed_ones_count_as_lost() -> None:
    serving = Serving(None, {}, lambda _: None)  # type: ignore[arg-type]
    counts = {"scheduled": 20, "ok": 10, "shed": 1, "failed": 2, "lost": 7, "unsent": 0}
    serving.kills.append(kill(1.5))
    serving.result = {**counts, "startedAt": STARTED, "failures": [failure(1), failure(9, "shed")]}
    found = Figures()
    serving.record(found)
    values = {row["metric"]: row["value"] for row in found.rows()}
    assert values["requests lost in flight at a kill"] == 1
    assert values["requests lost beyond those in flight at a kill, before the upgrade"] == 8
    assert values["requests lost beyond those in flight at a kill"] == 0


def test_requests_that_arrive_after_the_upgrade_count_for_this_release() -> None:
    serving = Serving(None, {}, lambda _: None)  # type: ignore[arg-type]
    serving.upgraded_at = STARTED + 5
    counts = {"scheduled": 20, "ok": 17, "shed": 0, "failed": 0, "lost": 3, "unsent": 0}
    serving.result = {**counts, "startedAt": STARTED, "failures": [failure(4), failure(5), failure(9)]}
    found = Figures()
    serving.record(found)
    values = {row["metric"]: row["value"] for row in found.rows()}
    assert values["requests lost beyond those in flight at a kill, before the upgrade"] == 1
    assert values["requests lost beyond those in flight at a kill"] == 2


def test_an_act_is_tried_again_until_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], list[float]()
    monkeypatch.setattr(spot.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(spot.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def act() -> None:
        calls.append(clock[0])
        if clock[0] < 10:
            raise ClusterError("the API server is down")

    spot.until_it_works(act)
    assert calls[-1] == 10
    with pytest.raises(ClusterError, match="down"):
        spot.until_it_works(lambda: (_ for _ in ()).throw(ClusterError("the API server is down")))
    assert clock[0] > spot.RETRY_SECONDS


def test_the_trace_takes_every_node_and_returns_it_before_its_end() -> None:
    found: SpotTrace = trace(600.0, 120.0)
    lost = [change for change in found.changes() if change.vanished]
    assert [len(one.vanished) for one in lost] == [1, 2, 1]
    assert [one.notice_seconds for one in lost] == [0.0, 0.0, 15.0]
    assert list(found.counts())[-1][1] == 2


@pytest.mark.parametrize(("at", "soon"), [(12.0, 1), (16.5, 0), (10.0, 0)])
def test_requests_that_arrive_soon_after_a_kill_are_counted(at: float, soon: int) -> None:
    assert soon_after([failure(at)], STARTED, [kill(11.0)]) == soon
