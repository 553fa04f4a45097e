"""Tests of the uploads of a slot: the shards that the slot sends, how often it checks that they are in the
store, and its reports of failures.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from convoy_agents import metrics
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores.errors import Damaged, Stopped
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.tiercheck.uploading import RECHECK_EVERY, UploadQueue, Uploads
from convoy_controllers.checkpoint.generation import Generation


def drain(work: UploadQueue) -> list[str]:
    """Mark every shard of the queue as sent. Return the shards in the order of the queue."""
    found = []
    while (key := work.next) is not None:
        found.append(key)
        work.mark_sent()
    return found


def test_every_shard_is_sent_once_and_rechecked_periodically() -> None:
    work = UploadQueue({"b", "a"})
    assert drain(work) == ["a", "b"]
    for _ in range(3):
        for _ in range(RECHECK_EVERY - 1):
            work.commit_pending()
            assert work.next is None
        work.commit_pending()
        assert drain(work) == ["a", "b"]


def test_a_failed_shard_is_the_next_again() -> None:
    work = UploadQueue({"a", "b"})
    work.mark_sent()
    assert work.next == work.next == "b"


@dataclass(frozen=True)
class Plan:
    pod_uid: str = "pod"
    job: str = "default/job"
    incarnation: int = 1


@dataclass
class Memory:
    """A fake JobMemory, with the parts that an upload uses."""

    uploading: set[str] = field(default_factory=set)
    closed: bool = False

    def start_upload(self, keys: set[str]) -> None:
        self.uploading.update(keys)

    async def end_upload(self, keys: set[str]) -> None:
        self.uploading.difference_update(keys)


@dataclass
class Store:
    """A fake Remotes, with the parts that an upload uses. `error`: the error that each upload raises."""

    error: Exception | None = None
    sent: list[str] = field(default_factory=list)

    async def upload(self, plan: Any, job_memory: Any, key: str) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(key)


def upload_counts() -> Counter[str]:
    """Return the number of finished uploads, by result."""
    results = ("stored", "refused", "superseded", "failed")
    return Counter({result: int(metrics.UPLOADS.labels(result)._value.get()) for result in results})


class Slot:
    def __init__(self, error: Exception | None = None) -> None:
        self.notified: list[dict[str, str]] = []
        self.here = self.verdict = True
        self.memory, self.store = Memory(), Store(error)
        troubles = TroubleReporter(lambda uid, incarnation, troubles: self.notified.append(dict(troubles)))
        self.uploads = Uploads(cast(Remotes, self.store), troubles, self.stand, lambda plan: self.here)

    async def stand(self, *_: Any) -> bool | None:
        await asyncio.sleep(0)
        return self.verdict

    async def upload(self, step: int, *keys: str) -> None:
        others = asyncio.all_tasks()
        generation = Generation(1, step)
        self.uploads.start(cast(Any, Plan()), cast(JobMemory, self.memory), generation, set(keys))
        await asyncio.wait(asyncio.all_tasks() - others)
        await asyncio.sleep(0)


async def test_a_superseded_upload_keeps_the_shards_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobMemory, "use", AsyncMock())
    with ThreadPoolExecutor(1) as pool:
        job_memory = JobMemory("uid", tmp_path, Budget(1 << 20), pool)
        job_memory.start_upload({"base", "first"})
        job_memory.start_upload({"base", "first", "second"})
        await job_memory.end_upload({"base", "first"})
        assert job_memory.uses.uploading == {"base", "first", "second"}
        await job_memory.end_upload({"base", "first", "second"})
        assert not job_memory.uses.uploading


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            Damaged("chunk 12 is damaged"),
            "gen-1-20: chunk 12 is damaged; the next generation is uploaded instead; "
            "if that happens again, test the node's memory",
        ),
        (Stopped(), "gen-1-20: Stopped; the next generation is uploaded instead"),
        (TimeoutError("60 s"), "gen-1-20: 60 s; the next generation is uploaded instead"),
    ],
)
async def test_a_failed_upload_is_reported_until_a_generation_is_stored(error: Exception, words: str) -> None:
    slot, before = Slot(error), upload_counts()
    await slot.upload(20, "a")
    assert upload_counts() - before == Counter(failed=1)
    assert slot.notified == [{"NOT_STORED": words}]
    assert not slot.memory.uploading
    slot.store.error = None
    await slot.upload(30, "a", "b")
    assert slot.store.sent == ["a", "b"] and slot.notified[1:] == [{}]
    assert upload_counts() - before == Counter(failed=1, stored=1)


async def test_uploads_are_counted_as_superseded_or_refused() -> None:
    slot, before = Slot(), upload_counts()
    first, second = Generation(1, 10), Generation(1, 20)
    others = asyncio.all_tasks()
    for generation in (first, second):
        slot.uploads.start(cast(Any, Plan()), cast(JobMemory, slot.memory), generation, {"a"})
        # Give the first upload a chance to start. It is then still running when the second upload starts.
        await asyncio.sleep(0)
        slot.verdict = False
    await asyncio.wait(asyncio.all_tasks() - others)
    assert upload_counts() - before == Counter(superseded=1, refused=1)


@pytest.mark.parametrize("over", ["the memory is given back", "the pod left"])
async def test_an_upload_that_ends_with_the_job_is_not_reported(over: str) -> None:
    slot = Slot(OSError("the job is over"))
    slot.memory.closed = over == "the memory is given back"

    def lasts(plan: Any, looks: list[int] = []) -> bool:  # noqa: B006 - of this test alone
        looks.append(1)
        return len(looks) == 1 or over != "the pod left"

    slot.uploads._is_current = lasts
    await slot.upload(20, "a")
    assert not slot.notified
