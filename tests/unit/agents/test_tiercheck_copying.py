"""Tests of copies that a host refuses, and of copies to a host that does not answer. The agent must retry
and report both kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from convoy_agents.pods.assignment import Assignment, MemoryTiers, NodeAddress
from convoy_agents.tiercheck.copying import ShardCopier
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.peer_transfer import Later, Outdated, PeerTransfer, Unreachable
from convoy_agents.tiercheck.trouble_reporter import REPORT_AFTER_SECONDS, TroubleReporter


@dataclass(frozen=True)
class Plan:
    memory: MemoryTiers
    pod_uid: str = "pod"
    job: str = "default/job"
    incarnation: int = 1


@dataclass
class Memory:
    job_uid: str = "job"
    releases: int = 0


@dataclass
class Slot:
    """A pod that sends copies of its shards to node `two`. For each attempt, `answer` returns the error
    with which the attempt fails, or None if it succeeds.
    """

    answer: Callable[[str, int], Exception | None]
    now: float = 0.0
    tries: int = 0
    given: list[str] = field(default_factory=list)
    notified: list[dict[str, str]] = field(default_factory=list)

    async def send(self, place: NodeAddress, job_memory: Any, plan: Assignment, key: str) -> None:
        self.tries += 1
        # Each attempt takes half of REPORT_AFTER_SECONDS, so the third failure in a row must be reported.
        self.now += REPORT_AFTER_SECONDS / 2
        if (error := self.answer(key, self.tries)) is not None:
            raise error
        self.given.append(key)

    async def copy(self, *keys: str) -> bool:
        plan = cast(Assignment, Plan(MemoryTiers(1, 0, (NodeAddress("two", "two:1"),))))
        troubles = TroubleReporter(
            lambda uid, incarnation, troubles: self.notified.append(dict(troubles)), lambda: self.now
        )
        copier = ShardCopier(cast(PeerTransfer, self), troubles, lambda uid: plan)
        async with asyncio.timeout(20):
            return await copier.copy(plan, cast(Any, Memory()), keys)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            Later("two: 7 more bytes are needed: the node's limit is 8 bytes"),
            "two: 7 more bytes are needed: the node's limit is 8 bytes",
        ),
        (Unreachable("two: UNAVAILABLE: no route"), "two: UNAVAILABLE: no route"),
        (OSError("out of files"), "two: cannot send: out of files"),
        (
            RuntimeError("can't start new thread"),
            "two: cannot send: can't start new thread",
        ),
        (MemoryError(), "two: cannot send: MemoryError"),
    ],
    ids=["no room", "unreachable", "no file", "no thread", "no memory"],
)
async def test_a_lasting_failure_is_reported_until_the_copies_exist(error: Exception, words: str) -> None:
    slot = Slot(lambda key, tries: error if tries < 5 else None)
    assert await slot.copy("base", "segment")
    assert slot.given == ["base", "segment"]
    assert slot.notified == [{"NOT_COPIED": words}, {}]


async def test_a_damaged_shard_is_not_retried() -> None:
    slot = Slot(lambda key, tries: Damaged("chunk 3"))
    with pytest.raises(Damaged):
        await slot.copy("base")
    assert slot.tries == 1


async def test_a_transient_failure_is_not_reported() -> None:
    slot = Slot(lambda key, tries: Later("two: not restored here yet") if tries % 3 else None)
    assert await slot.copy("base", "segment")
    assert slot.tries == 6 and slot.notified == []


async def test_a_superseded_copy_is_not_reported() -> None:
    slot = Slot(lambda key, tries: Outdated("two: gen-1-20 has its copies already"))
    assert not await slot.copy("base")
    assert slot.notified == []
