"""Tests of the records that the ledger writes, and its choice of generations for the store."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agents.test_tiercheck_shard_store import SIZE, named, noise, sealed

from convoy_agents.commit_coordinator import PrepareVote
from convoy_agents.daemon import Agent
from convoy_agents.tiercheck import memory as share
from convoy_agents.tiercheck.ledger import MemoryLedger
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

FIRST, SECOND = Generation(1, 1), Generation(1, 2)


class FakeMemory:
    """A fake of MemoryManager, JobMemory and Remotes, with only the parts that the ledger uses."""

    def __init__(self, folder: Path) -> None:
        self.store = ShardStore(folder)
        self.store.start_incarnation(1, {})
        self.store.reserve("0", 2, SIZE)
        self.collections = 0
        self.on_commit: Callable[[], None] | None = None
        """A function that ends the job during a commit in its store; None if the job does not end."""
        self.there = True

    def open(self, job_uid: str) -> FakeMemory:
        return self

    def get(self, job_uid: str) -> FakeMemory | None:
        return self if self.there else None

    async def inspect(self, do: Callable[[ShardStore], Any]) -> Any:
        return do(self.store)

    async def record_commit(self, record: Record, incarnation: int, *tiers: Tier) -> bool:
        if record.generation not in self.store.records:
            self.store.add_record(record)
        for tier in tiers:
            self.store.advance(tier, record.generation)
        return True

    def can_commit(self, plan: Any) -> bool:
        return True

    async def commit(self, plan: Any, record: Record) -> bool:
        if self.there and self.on_commit is not None:
            self.there = False
            self.on_commit()
        raise StoreError("no room", retriable=True, errno=errno.ENOSPC)

    async def collect_garbage(self, plan: Any) -> None:
        self.collections += 1


class Use:
    every_seconds = 3600


class Memory:
    store = Use()


class Plan:
    pod_uid, job_uid, job = "pod", "job-uid", "job"
    incarnation, world_size, memory = 1, 1, Memory()


async def write(ledger: MemoryLedger, memory: FakeMemory, generation: Generation) -> Record:
    """Commit a generation at the local tier with a vote of every slot. Return the generation's record."""
    plan: Any = Plan()
    manifest = sealed(memory.store, f"0-{generation.step % 2}", generation.step)
    votes = {0: PrepareVote({"0": manifest.id}, ShardMetadata(1, "2.13", "plan"))}
    assert await ledger.write(plan, Tier.LOCAL, generation, votes)
    return memory.store.records[generation]


@pytest.mark.parametrize("kept", [None, False, True], ids=["none", "not to the store", "to the store"])
async def test_an_existing_record_decides_whether_the_generation_goes_to_the_store(
    tmp_path: Path, kept: bool | None
) -> None:
    """An earlier agent ended after it wrote the record and before it advanced the watermark. The next agent
    must keep this record unchanged, even if it would make another choice for the store.
    """
    memory: Any = FakeMemory(tmp_path)
    ledger = MemoryLedger(memory, memory, TroubleReporter(lambda *_: None))
    fresh = Record(FIRST, None, {"0": named(noise(1), 1).id}, 1, "2.13", 1.0)
    if kept is not None:
        memory.store.add_record(replace(fresh, remote=kept))
    first = await write(ledger, memory, FIRST)
    assert first.remote == (kept is not False)
    # The second generation must go to the store only if the first is not being uploaded.
    assert (await write(ledger, memory, SECOND)).remote != first.remote


async def test_drop_job_drops_the_state_of_the_commits(tmp_path: Path) -> None:
    """Until `drop_job`, the ledger remembers two generations: the one that it chose for the store, and the
    one for which it collected garbage. Afterwards it must remember neither.
    """
    memory: Any = FakeMemory(tmp_path)
    plan: Any = Plan()
    ledger = MemoryLedger(memory, memory, TroubleReporter(lambda *_: None))
    assert (await write(ledger, memory, FIRST)).remote
    for _ in range(2):
        assert not await ledger.write(plan, Tier.REMOTE, FIRST, {})
    assert memory.collections == 1
    ledger.drop_job("job-uid")
    assert (await write(ledger, memory, SECOND)).remote
    assert not await ledger.write(plan, Tier.REMOTE, FIRST, {})
    assert memory.collections == 2


async def test_a_job_that_ends_during_a_commit_gets_no_upload(tmp_path: Path) -> None:
    memory: Any = FakeMemory(tmp_path)
    plan: Any = Plan()
    ledger = MemoryLedger(memory, memory, TroubleReporter(lambda *_: None))
    assert (await write(ledger, memory, FIRST)).remote
    memory.on_commit = lambda: ledger.drop_job("job-uid")
    for number in (1, 2):
        assert not await ledger.write(plan, Tier.REMOTE, FIRST, {})
        assert memory.collections == number


@pytest.mark.parametrize("given_back", [True, False])
async def test_a_job_ends_only_after_its_memory_is_released(
    tmp_path: Path, given_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(folder: Path) -> None:
        if not given_back:
            raise OSError("busy")

    monkeypatch.setattr(share, "close_share", close)
    memory_manager = MemoryManager(tmp_path, 0, lambda: None)
    written: list[str] = []
    read: list[str] = []
    memory_manager.open("job-uid")
    agent: Any = SimpleNamespace(
        memory_manager=memory_manager,
        _ledger=SimpleNamespace(drop_job=written.append),
        _ranks=SimpleNamespace(drop_job=read.append),
    )
    await Agent._finish_job(agent, "job-uid")
    assert written == read == (["job-uid"] if given_back else [])
