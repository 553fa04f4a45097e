"""Tests of merge patches of statuses, and of the rate limit for patches that carry only progress."""

from __future__ import annotations

import bisect
import heapq
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.conftest import merged

from convoy_controllers.keys import Key
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.progress_throttle import ProgressThrottle
from convoy_controllers.servingjob.controller import PROGRESS_FIELDS
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.plan import plan

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
STATUSES = st.dictionaries(st.text(max_size=2), VALUES, max_size=5)


@given(old=STATUSES, new=STATUSES)
def test_patch_turns_the_old_status_into_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, merge_patch(old, new)) == new


@given(status=STATUSES)
def test_equal_statuses_need_no_patch(status: dict[str, Any]) -> None:
    assert merge_patch(status, dict(status)) == {}


def test_patch_contains_only_changes() -> None:
    old = {"phase": "Running", "progress": {"step": 1, "loss": 2.0}, "completionTime": "t"}
    new = {"phase": "Running", "progress": {"step": 2, "loss": 2.0}}
    assert merge_patch(old, new) == {"progress": {"step": 2}, "completionTime": None}


KEY = Key("TrainingJob", "ns", "job")
STORED = {"phase": "Running", "progress": {"step": 1}, "checkpoint": {}}


def test_progress_waits_and_transitions_do_not() -> None:
    throttle = ProgressThrottle(10, 5)
    throttle.record_write(KEY, 100)
    assert throttle.wait(KEY, STORED, {"progress": {"step": 2}, "checkpoint": {}}, 1, 104) == 6
    assert throttle.wait(KEY, STORED, {"progress": {"step": 2}, "phase": "Failed"}, 1, 104) == 0
    assert throttle.wait(KEY, STORED, {"progress": {"step": 2}}, 1, 110) == 0


def jobs(count: int) -> list[Key]:
    return [Key("TrainingJob", "ns", f"job-{index}") for index in range(count)]


def test_writes_of_jobs_that_start_together_are_spread() -> None:
    throttle, step = ProgressThrottle(10, 5), {"progress": {"step": 2}}
    for key in jobs(1000):
        throttle.record_write(key, 100)
    waits = [throttle.wait(key, STORED, step, 1000, 101) for key in jobs(1000)]
    assert waits == pytest.approx([9 + index / 5 for index in range(1000)]), "five a second"


def test_new_leader_spreads_the_writes_of_all_jobs() -> None:
    throttle = ProgressThrottle(10, 5)
    waits = [throttle.wait(key, STORED, {"progress": {"step": 2}}, 1000, 100) for key in jobs(1000)]
    assert waits == pytest.approx([index / 5 for index in range(1000)])


def test_turn_stays_until_used() -> None:
    throttle, (key, other) = ProgressThrottle(10, 0.5), jobs(2)
    throttle.record_write(key, 0)
    throttle.record_write(other, 0)
    assert [throttle.turn(key, 2, now) for now in (10, 10, 12)] == [0, 0, 0]
    assert throttle.turn(other, 2, 11) == 1
    throttle.record_write(key, 12)
    assert throttle.turn(key, 2, 12) == 10


def test_turns_are_reassigned_when_the_number_of_jobs_drops() -> None:
    throttle, (first, *others, last) = ProgressThrottle(10, 5), jobs(1000)
    for key in (first, *others, last):
        throttle.record_write(key, 0)
        throttle.turn(key, 1000, 0)
    for key in others:
        throttle.drop(key)
    assert [throttle.turn(key, 2, 0) for key in (first, last)] == [10, pytest.approx(10.2)]


def test_writes_of_long_running_jobs_stay_spread() -> None:
    """First, each of 1000 jobs writes a change that is not progress. Then all jobs make steps, and each
    requests its next turn right after a write. No interval of 10 s may have more writes than the rate
    limit allows.
    """
    throttle, written = ProgressThrottle(10, 4), []
    due = [(index / 50, key) for index, key in enumerate(jobs(1000))]
    for at, key in due:
        throttle.record_write(key, at)
        throttle.turn(key, 1000, at)
    for at, key in due:
        throttle.record_write(key, at + 20)
    due = [(at + 20 + throttle.turn(key, 1000, at + 20), key) for at, key in due]
    heapq.heapify(due)
    while due[0][0] < 1000:
        at, key = heapq.heappop(due)
        if not (wait := throttle.wait(key, STORED, {"progress": {"step": 2}}, 1000, at)):
            written.append(at)
            throttle.record_write(key, at)
            wait = throttle.turn(key, 1000, at)
        heapq.heappush(due, (at + wait, key))
    assert len(written) >= 3500
    assert max(bisect.bisect_left(written, at + 10) - index for index, at in enumerate(written)) <= 41


@pytest.mark.parametrize(("count", "seconds"), [(40, 10), (80, 20)])
def test_traffic_of_busy_servingjobs_is_written_at_an_interval_with_a_bound(count: int, seconds: int) -> None:
    """The figures change all the time. They are written at least every 10 + jobs / 4 seconds, and a change of
    a condition at once.
    """
    stored = {"reason": "Serving", "traffic": {"p95Ms": 1.0}, "conditions": []}
    throttle, written = ProgressThrottle(10, 4), {key: list[float]() for key in jobs(count)}
    for now in (tick / 4 for tick in range(4 * 4 * seconds)):
        for key, times in written.items():
            if not throttle.wait(key, stored, {"traffic": {"p95Ms": now}}, count, now, PROGRESS_FIELDS):
                throttle.record_write(key, now)
                times.append(now)
    gaps = [after - before for times in written.values() for before, after in itertools.pairwise(times)]
    assert max(gaps) <= seconds + 10 and len(gaps) >= 2 * count
    key = jobs(1)[0]
    changed = {"conditions": [{"type": "SLOMet"}], "traffic": {"p95Ms": 2.0}}
    assert throttle.wait(key, stored, changed, count, 4.0 * seconds, PROGRESS_FIELDS) == 0


def test_unused_turn_expires() -> None:
    throttle, (early, late) = ProgressThrottle(10, 0.5), jobs(2)
    for key in (early, late):
        throttle.record_write(key, 0)
        throttle.turn(key, 2, 0)
    assert throttle.turn(early, 2, 20) == 0
    assert [throttle.turn(key, 2, 30) for key in (early, late)] == [0, 2], "not both at once"


SOME = st.sets(st.integers(0, 30), max_size=8)


@given(
    rounds=st.lists(st.tuples(st.floats(0, 3), SOME, SOME), max_size=40),
    # At these rates, the number of writes in each window is smaller than the number of jobs.
    rate=st.sampled_from((0.2, 0.5, 1.0)),
)
def test_writes_keep_the_rate_limit(rounds: list[tuple[float, set[int], set[int]]], rate: float) -> None:
    """In each round, every job requests a turn, except those in `quiet`. The jobs in `others` write for
    another reason instead.

    A job may use its turn up to `seconds` late. Only such late writes may exceed the rate.
    """
    throttle, names, now, written = ProgressThrottle(10, rate), jobs(31), 0.0, []
    for key in names:
        throttle.record_write(key, now)
    for later, quiet, others in rounds:
        now += later
        for index, key in enumerate(names):
            if index in others:
                throttle.record_write(key, now)
            elif index not in quiet and not throttle.wait(key, STORED, {"progress": {"step": 2}}, 31, now):
                written.append(now)
                throttle.record_write(key, now)
    for at in written:
        assert sum(at <= one < at + 10 for one in written) <= (10 + 10) * rate + 1


def test_first_progress_and_first_checkpoint_are_not_throttled() -> None:
    throttle = ProgressThrottle(10, 5)
    throttle.record_write(KEY, 100)
    running = {"phase": "Running"}
    assert throttle.wait(KEY, running, {"progress": {"step": 1}}, 1, 101) == 0
    assert throttle.wait(KEY, {**running, "progress": {}}, {"checkpoint": {"step": 1}}, 1, 101) == 0


def test_last_checkpoint_of_a_suspending_job_is_not_throttled() -> None:
    throttle = ProgressThrottle(10, 5)
    throttle.record_write(KEY, 100)
    assert throttle.wait(KEY, {**STORED, "phase": "Suspending"}, {"checkpoint": {"step": 9}}, 1, 101) == 0


def test_steps_are_throttled_and_changes_of_the_ledger_cause_are_not() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().train(5).settle().wait(1)
    throttle, stored = ProgressThrottle(10.0, 5.0), cluster.job.to_dict()["status"]
    throttle.record_write(KEY, 100.0)
    step = plan(cluster.train(6).observed(), cluster.now).status
    assert step is not None and 0 < throttle.wait(KEY, stored, merge_patch(stored, step), 1, 101.0) <= 10
    cluster.exit(0, 137, signal=9, ended=cluster.now.timestamp())
    fault = plan(cluster.observed(), cluster.now).status
    assert fault is not None and throttle.wait(KEY, stored, merge_patch(stored, fault), 1, 101.0) == 0


@pytest.mark.parametrize(
    ("patch", "waits"),
    [
        ({"progress": {"step": 2}, "internal": {"goodput": {"best": 2}}}, True),
        ({"internal": {"goodput": {"best": 2}, "layout": "other"}}, False),
        ({"internal": {"restarts": {"best": 2}}}, False),
        ({"internal": None}, False),
    ],
    ids=["ledger", "ledger and layout", "restarts", "all bookkeeping removed"],
)
def test_only_the_ledger_s_bookkeeping_is_throttled(patch: dict[str, Any], waits: bool) -> None:
    throttle = ProgressThrottle(10, 5)
    throttle.record_write(KEY, 100)
    internal = {"goodput": {"best": 1}, "layout": "l", "restarts": {"best": 1}}
    stored = {"phase": "Running", "progress": {"step": 1}, "internal": internal}
    assert (throttle.wait(KEY, stored, patch, 1, 101) > 0) is waits


def test_first_entry_of_the_ledger_s_bookkeeping_is_not_throttled() -> None:
    throttle = ProgressThrottle(10, 5)
    throttle.record_write(KEY, 100)
    stored = {"phase": "Running", "internal": {"layout": "l"}}
    assert throttle.wait(KEY, stored, {"internal": {"goodput": {"best": 1}}}, 1, 101) == 0
