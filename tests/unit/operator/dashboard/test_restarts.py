"""Tests of the history of restarts. Each restart must be recorded once, in bounded memory, until its job is
deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operator.dashboard.builders import ago, parsed, training

from convoy_crds.trainingjob_status import TrainingJobStatus
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core.restarts import MAX_MESSAGE, MAX_RESTARTS, RestartHistory
from convoy_operator.dashboard.feed import Feed


def status(incarnation: int, seconds: float = 0.0, **last: Any) -> TrainingJobStatus:
    """Return the status of a job whose last restart was `seconds` ago."""
    given = {"reason": "RankKilled", "message": "m", "at": ago(seconds=seconds), **last}
    return training(incarnation=incarnation, restarts={"total": 1, "last": given}).status


def test_each_restart_is_recorded_once_with_its_circumstances() -> None:
    known = RestartHistory()
    known.record("a", training().status)
    assert known.get("a") == () and len(known) == 0
    known.record("a", status(2, 90, rank=1, node="n1", step=40))
    known.record("a", status(3, 90, rank=1, node="n1", step=40))
    known.record("a", status(4, 10, reason="PodLost", counted=False, message="x" * 9000))
    first, second = known.get("a")
    assert (first.incarnation, first.reason, first.message) == (2, "RankKilled", "m")
    assert first.circumstances == "rank 1 on n1, at step 40, scope Process, counts toward maxRestarts"
    assert (second.incarnation, second.reason) == (4, "PodLost")
    assert (
        len(second.message) == MAX_MESSAGE
        and second.circumstances == "scope Process, does not count toward maxRestarts"
    )


def test_restarts_per_job_and_jobs_are_bounded() -> None:
    known = RestartHistory(jobs=2)
    for number in range(MAX_RESTARTS + 5):
        known.record("a", status(number, 1000 - number))
    assert [one.incarnation for one in known.get("a")] == list(range(5, MAX_RESTARTS + 5))
    known.record("b", status(1))
    known.record("a", status(99))
    known.record("c", status(1))
    assert [bool(known.get(one)) for one in "abc"] == [True, False, True]


def test_restarts_are_kept_until_their_job_is_deleted() -> None:
    cache = DashboardCache(Feed())
    for version, (incarnation, seconds) in enumerate(((2, 90), (2, 90), (3, 10))):
        last = {"reason": "RankKilled", "at": ago(seconds=seconds)}
        job = replace(parsed(incarnation=incarnation, restarts={"last": last}), version=version)
        cache.jobs.upsert(job)
    assert [one.incarnation for one in cache.restarts.get("u-gpt")] == [2, 3]
    cache.jobs.remove(job)
    assert len(cache.restarts) == 0
