"""Tests of the reports about requests that a store or a node's memory refuses: their messages, and the
times at which they are sent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.stores.errors import Damaged, StoreError
from convoy_agents.tiercheck.trouble_reporter import REPORT_AFTER_SECONDS, TroubleReporter
from convoy_controllers.checkpoint.generation import Generation

BUSY = StoreError("the store is busy", retriable=True)
REFUSED = StoreError("the keys are wrong", retriable=False)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
GENERATION = Generation(1, 20)


@dataclass(frozen=True)
class Plan:
    pod_uid: str = "pod"
    incarnation: int = 1


def at(**plan: Any) -> Assignment:
    return cast(Assignment, Plan(**plan))


class Place:
    def __init__(self) -> None:
        self.now = 100.0
        self.notified: list[tuple[str, int, dict[str, str]]] = []
        self.troubles = TroubleReporter(self._record, lambda: self.now)

    def _record(self, uid: str, incarnation: int, troubles: Mapping[str, str]) -> None:
        self.notified.append((uid, incarnation, dict(troubles)))

    def failed(self, error: StoreError, after: float = 0.0, **plan: Any) -> list[str]:
        """Advance the clock, then record a failed upload. Return the messages that were reported."""
        self.now += after
        mark = len(self.notified)
        self.troubles.not_stored(at(**plan), GENERATION, error)
        return [troubles["NOT_STORED"] for _, _, troubles in self.notified[mark:]]


def test_a_permanent_failure_is_reported_immediately_and_once() -> None:
    place = Place()
    assert place.failed(REFUSED) == ["gen-1-20: the keys are wrong; the upload is tried again"]
    assert place.failed(REFUSED) == []
    assert [(uid, incarnation) for uid, incarnation, _ in place.notified] == [("pod", 1)]


def test_a_retriable_failure_is_reported_only_if_it_lasts() -> None:
    place = Place()
    assert place.failed(BUSY) == place.failed(BUSY, REPORT_AFTER_SECONDS / 2) == []
    message = ["gen-1-20: the store is busy; the upload is tried again"]
    assert place.failed(BUSY, REPORT_AFTER_SECONDS / 2) == message


def test_a_stored_upload_ends_the_trouble_and_restarts_its_delay() -> None:
    place = Place()
    place.failed(BUSY)
    assert place.failed(BUSY, REPORT_AFTER_SECONDS)
    place.troubles.stored(at())
    assert place.notified[1:] == [("pod", 1, {})]
    assert place.failed(BUSY, 2 * REPORT_AFTER_SECONDS) == []


def test_a_record_not_written_to_memory_is_reported_immediately() -> None:
    place = Place()
    place.troubles.record_not_written(at(), GENERATION, FULL)
    place.troubles.record_written(at())
    why = "gen-1-20: its record cannot be written to memory: No space left on device"
    assert place.notified == [("pod", 1, {"NO_MEMORY": why}), ("pod", 1, {})]


def test_a_success_without_earlier_trouble_is_not_reported() -> None:
    place = Place()
    place.troubles.record_written(at())
    place.troubles.stored(at())
    place.troubles.memory_granted(at(), 0, "saving")
    assert place.notified == []


def test_a_lasting_copy_refusal_is_reported_until_copies_exist() -> None:
    place = Place()

    def refused(after: float, host: str = "two", key: str = "a", **plan: Any) -> list[dict[str, str]]:
        place.now += after
        mark = len(place.notified)
        place.troubles.not_copied(at(**plan), host, key, f"{host}: 7 more bytes are needed")
        return [troubles for _, _, troubles in place.notified[mark:]]

    notified = {"NOT_COPIED": "two: 7 more bytes are needed"}
    assert refused(0) == refused(REPORT_AFTER_SECONDS / 2) == []
    # The delay is measured for each shard and each host separately.
    assert refused(REPORT_AFTER_SECONDS / 4, key="b") == refused(0, host="three") == []
    assert refused(REPORT_AFTER_SECONDS / 4) == [notified]
    assert refused(REPORT_AFTER_SECONDS, host="three") == [
        {"NOT_COPIED": "three: 7 more bytes are needed; two: 7 more bytes are needed"}
    ]
    place.troubles.copied(at(), "three")
    assert place.notified[-1][2] == notified
    place.troubles.copied(at(), "two")
    assert place.notified[-1][2] == {}
    # The copies have succeeded in between, so the delay of a new failure starts from zero.
    assert refused(0) == refused(REPORT_AFTER_SECONDS / 2) == []
    assert refused(REPORT_AFTER_SECONDS, incarnation=2) == []


def test_not_restored_is_reported_once_and_ends_when_restorable() -> None:
    place = Place()
    place.troubles.not_restored(at(), "the store is away")
    place.troubles.not_restored(at(), "the store is away")
    place.troubles.restorable(at())
    assert [troubles for *_, troubles in place.notified] == [{"NOT_RESTORED": "the store is away"}, {}]


BEGINS: dict[str, Callable[[TroubleReporter], None]] = {
    "record": lambda troubles: troubles.record_not_written(at(), GENERATION, FULL),
    "rank 0 saves": lambda troubles: troubles.memory_refused(at(), 0, "saving", "7 more bytes are needed"),
    "rank 1 saves": lambda troubles: troubles.memory_refused(at(), 1, "saving", "8 more bytes are needed"),
    "rank 0 reads": lambda troubles: troubles.memory_refused(at(), 0, "reading", "9 more bytes are needed"),
    "lost": lambda troubles: troubles.checkpoints_lost(at(), "nothing is whole"),
    "inexact": lambda troubles: troubles.inexact(at(), 0, "two.weight"),
    "store": lambda troubles: troubles.not_stored(at(), GENERATION, REFUSED),
    "shard": lambda troubles: troubles.upload_failed(at(), GENERATION, Damaged("chunk 12 is damaged")),
}
ENDS: dict[str, tuple[Callable[[TroubleReporter], None], set[str]]] = {
    "noted": (lambda troubles: troubles.record_written(at()), {"record"}),
    "rank 0 has buffers": (lambda troubles: troubles.memory_granted(at(), 0, "saving"), {"rank 0 saves"}),
    "rank 1 has buffers": (lambda troubles: troubles.memory_granted(at(), 1, "saving"), {"rank 1 saves"}),
    "rank 0 has read": (lambda troubles: troubles.memory_granted(at(), 0, "reading"), {"rank 0 reads"}),
    "stored": (lambda troubles: troubles.stored(at()), {"store", "shard"}),
}


@pytest.mark.parametrize(("end", "ended"), ENDS.values(), ids=ENDS.keys())
def test_each_event_ends_only_its_own_trouble(
    end: Callable[[TroubleReporter], None], ended: set[str]
) -> None:
    place, wanted = Place(), Place()
    for name, begin in BEGINS.items():
        begin(place.troubles)
        if name not in ended:
            begin(wanted.troubles)
    assert place.notified[-1] != wanted.notified[-1]
    end(place.troubles)
    assert place.notified[-1] == wanted.notified[-1]
    assert set(place.notified[-1][2]) == {"NO_MEMORY", "LOST", "INEXACT"} | (
        set() if "store" in ended else {"NOT_STORED"}
    )


def test_pods_and_incarnations_have_separate_delays() -> None:
    place = Place()
    place.failed(BUSY)
    assert place.failed(BUSY, 2 * REPORT_AFTER_SECONDS, pod_uid="other") == []
    assert place.failed(BUSY, incarnation=2) == []
    place.failed(BUSY, pod_uid="gone")
    place.troubles.drop_pod("gone")
    assert place.failed(BUSY, 2 * REPORT_AFTER_SECONDS, pod_uid="gone") == []


def test_a_new_incarnation_has_no_troubles_and_earlier_ones_are_ignored() -> None:
    place = Place()
    place.troubles.checkpoints_lost(at(), "nothing is whole")
    place.troubles.inexact(at(incarnation=2), 0, "two.weight")
    assert place.notified[-1] == ("pod", 2, {"INEXACT": "rank 0: two.weight"})
    place.troubles.checkpoints_lost(at(), "nothing at all is whole")
    place.troubles.stored(at())
    assert len(place.notified) == 2
    assert place.failed(BUSY, incarnation=2) == []
