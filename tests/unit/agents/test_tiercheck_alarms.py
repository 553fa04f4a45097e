"""Who is told, and when, that a store or a node's memory takes nothing."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Any, cast

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.alarms import PATIENCE_SECONDS, Alarms
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_controllers.checkpoint.generation import Generation

BUSY = StoreError("the store is busy", retriable=True)
REFUSED = StoreError("the keys are wrong", retriable=False)


@dataclass(frozen=True)
class Plan:
    pod_uid: str = "pod"
    incarnation: int = 1


class Place:
    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[tuple[str, int, str, str]] = []
        self.alarms = Alarms(lambda *what: self.told.append(what), lambda: self.now)

    def failed(self, error: StoreError, after: float = 0.0, **plan: Any) -> list[str]:
        """The messages that are told of it."""
        self.now += after
        mark = len(self.told)
        self.alarms.not_stored(cast(Assignment, Plan(**plan)), Generation(1, 20), error)
        return [message for _, _, _, message in self.told[mark:]]


def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    place = Place()
    assert place.failed(REFUSED) == ["gen-1-20: the keys are wrong"]
    assert place.told == [("pod", 1, "NOT_STORED", "gen-1-20: the keys are wrong")]


def test_what_may_pass_is_told_when_it_lasts() -> None:
    place = Place()
    assert place.failed(BUSY) == place.failed(BUSY, PATIENCE_SECONDS / 2) == []
    assert place.failed(BUSY, PATIENCE_SECONDS / 2) == ["gen-1-20: the store is busy"]


def test_it_is_over_once_something_gets_there_and_counts_anew() -> None:
    place = Place()
    place.failed(BUSY)
    place.alarms.stored(cast(Assignment, Plan()))
    assert place.told == [("pod", 1, "NOT_STORED", "")]
    assert place.failed(BUSY, 2 * PATIENCE_SECONDS) == []


def test_a_record_that_memory_does_not_take_is_told_at_once() -> None:
    place = Place()
    plan = cast(Assignment, Plan())
    place.alarms.not_noted(plan, Generation(1, 20), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    place.alarms.noted(plan)
    why = "gen-1-20 is not written down: No space left on device"
    assert place.told == [("pod", 1, "NO_MEMORY", why), ("pod", 1, "NO_MEMORY", "")]


def test_pods_and_incarnations_count_for_themselves() -> None:
    place = Place()
    place.failed(BUSY)
    assert place.failed(BUSY, 2 * PATIENCE_SECONDS, pod_uid="other") == []
    assert place.failed(BUSY, incarnation=2) == []
    place.failed(BUSY, pod_uid="gone")
    place.alarms.forget("gone")
    assert place.failed(BUSY, 2 * PATIENCE_SECONDS, pod_uid="gone") == []
