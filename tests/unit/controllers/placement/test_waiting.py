"""Tests of the wait of jobs for room: their searches, their messages, and the time between two searches."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.controllers.placement.placed_nodes import RACK, PlacedJob, body, node_rooms

from convoy_controllers.placement import placing
from convoy_controllers.placement.placing import place
from convoy_controllers.placement.rooms import RoomTable
from convoy_controllers.placement.waiting import (
    JITTER,
    KEPT_SECONDS,
    MAX_KEPT,
    MAX_RECHECK_SECONDS,
    RECHECK_SECONDS,
    keep,
    recheck_seconds,
    waits_for_room,
)
from convoy_controllers.workers.violation import Violation
from convoy_crds.placement import Packing
from convoy_crds.reasons.catalogue import Reasons

REQUIRED = Packing(topologyKeys=[RACK], pack="Required")


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each search for places; True if it was for empty nodes."""
    made: list[bool] = []
    original = placing.choose

    def choose(classes: Any, rooms: Any, keys: int, **facts: Any) -> Any:
        made.append(all(one.free["cpu"] == 8000 for one in rooms))
        return original(classes, rooms, keys, **facts)

    monkeypatch.setattr(placing, "choose", choose)
    return made


def table(free: int, before: RoomTable | None = None) -> RoomTable:
    """Return one rack of two nodes, each with room for `free` pods."""
    return RoomTable(node_rooms(1, 2, free), before.version + 1 if before else 0, before, same_nodes=True)


def test_a_waiting_job_does_not_search_again_while_the_room_is_the_same(searches: list[bool]) -> None:
    rooms, pods = table(1), [body(number) for number in range(4)]
    first = place(REQUIRED, rooms, pods, [], now=100.0)
    assert first.held is not None and len(searches) == 2
    assert place(REQUIRED, rooms, pods, [], now=105.0).held == first.held
    assert len(searches) == 2
    assert place(REQUIRED, rooms, pods[:3], [], now=105.0).held is not None
    assert len(searches) == 4, "other pods need another search"
    place(REQUIRED, table(0, rooms), pods, [], now=110.0)
    assert len(searches) == 5, "the room on empty nodes is known"


def test_a_job_starts_as_soon_as_there_is_room() -> None:
    rooms, pods = table(1), [body(number) for number in range(4)]
    assert place(REQUIRED, rooms, pods, [], now=100.0).held is not None
    assert len(place(REQUIRED, table(2, rooms), pods, [], now=101.0).pods) == 4


def test_the_message_stays_for_a_while_although_the_room_changes() -> None:
    rooms, pods = table(1), [body(number) for number in range(4)]
    first = place(REQUIRED, rooms, pods, [], now=100.0).held
    assert first is not None and "room for 2" in first.message
    rooms = table(0, rooms)
    assert place(REQUIRED, rooms, pods, [], now=100.0 + KEPT_SECONDS - 1).held == first
    rooms = table(0, RoomTable({}, 5, rooms))
    later = place(REQUIRED, rooms, pods, [], now=100.0 + KEPT_SECONDS).held
    assert later is not None and "room for 0" in later.message


def test_another_reason_is_reported_at_once() -> None:
    rooms, key = table(1), "pods"
    assert keep(rooms, key, Violation(Reasons.NO_ROOM_TOGETHER, "a"), 100.0).message == "a"
    assert keep(rooms, key, Violation(Reasons.NEVER_TOGETHER, "b"), 101.0).message == "b"


def test_the_memory_of_searches_is_bounded() -> None:
    rooms = table(1)
    for key in range(MAX_KEPT + 10):
        keep(rooms, key, Violation(Reasons.NO_ROOM_TOGETHER, "a"), 100.0)
    assert len(rooms.held) == MAX_KEPT and 0 not in rooms.held and MAX_KEPT + 9 in rooms.held
    for key in range(MAX_KEPT):
        rooms.shared(key, lambda: 0)
    assert len(rooms._of_room) < MAX_KEPT


@pytest.mark.parametrize(
    ("waiting", "longest"), [(0, RECHECK_SECONDS), (10, 5.0), (100, 50.0), (10_000, MAX_RECHECK_SECONDS)]
)
def test_all_waiting_jobs_together_search_at_a_bounded_rate(waiting: int, longest: float) -> None:
    rooms = table(1)
    rooms.waiting = waiting
    found = {recheck_seconds(rooms, f"default/job-{number}") for number in range(200)}
    assert longest * (1 - JITTER) <= min(found) < max(found) <= longest
    assert max(found) - min(found) > longest * JITTER / 2, "the jobs do not search together"


def test_the_status_of_a_waiting_job_is_written_once_a_minute_at_most() -> None:
    rooms = table(0)
    job = PlacedJob(rooms, pack="Required")
    statuses = []
    for look in range(24):
        nodes = {**node_rooms(1, 2, 0), **(node_rooms(1, 1, 1) if look % 5 == 2 else {})}
        job.rooms = rooms = RoomTable(nodes, rooms.version + 1, rooms, same_nodes=True)
        job.step()
        statuses.append((job.job.status.reason, job.job.status.message))
        job.wait(5)
    assert {reason for reason, _ in statuses} == {"NoRoomTogether"}
    changes = sum(one != other for one, other in pairwise(statuses))
    assert changes == 1


def test_many_waiting_jobs_wait_longer() -> None:
    rooms = table(0)
    rooms.waiting = 200
    job = PlacedJob(rooms, pack="Required")
    made = [job.step() for _ in range(3)][-1]
    assert job.job.status.reason == "NoRoomTogether"
    assert made.requeue_after is not None and made.requeue_after > timedelta(seconds=60).total_seconds()


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ({}, False),
        ({"conditions": [{"reason": "Training"}]}, False),
        ({"conditions": [{"reason": "Training"}, {"reason": "NoRoomTogether"}]}, True),
        ({"conditions": [{"reason": "NeverTogether"}]}, True),
        ({"internal": {"groups": [{"role": "worker"}]}}, False),
        ({"internal": {"groups": [{"role": "worker", "noRoom": True}]}}, True),
    ],
)
def test_waiting_jobs_are_found_by_their_status(status: dict[str, Any], waits: bool) -> None:
    assert waits_for_room(status) is waits
