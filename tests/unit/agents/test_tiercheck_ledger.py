"""What is written down of a generation, and whether it is to go to the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.test_tiercheck_vault import SIZE, named, noise, sealed

from convoy_agents.desk import Said
from convoy_agents.tiercheck.alarms import Alarms
from convoy_agents.tiercheck.ledger import KeptLedger
from convoy_agents.tiercheck.vault import Facts, Vault
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

FIRST, SECOND = Generation(1, 1), Generation(1, 2)


class Kept:
    """The memory of the agent of slot 0, and the store's: only what the ledger asks of them."""

    def __init__(self, folder: Path) -> None:
        self.vault = Vault(folder)
        self.vault.begin(1, {})
        self.vault.reserve("0", 2, SIZE)

    def open(self, job_uid: str) -> Kept:
        return self

    get = open

    async def look(self, do: Callable[[Vault], Any]) -> Any:
        return do(self.vault)

    async def committed(self, record: Record, incarnation: int, *tiers: Tier) -> bool:
        if record.generation not in self.vault.records:
            self.vault.record(record)
        for tier in tiers:
            self.vault.advance(tier, record.generation)
        return True

    def commits(self, plan: Any) -> bool:
        return True


class Use:
    every_seconds = 3600


class Memory:
    store = Use()


class Plan:
    pod_uid, job_uid, job = "pod", "job-uid", "job"
    incarnation, world_size, memory = 1, 1, Memory()


@pytest.mark.parametrize("kept", [None, False, True], ids=["none", "not to the store", "to the store"])
async def test_the_record_that_stands_tells_whether_it_goes_to_the_store(
    tmp_path: Path, kept: bool | None
) -> None:
    """An agent has ended between the record and the watermark: its record stands, whatever the next one makes
    of it.
    """
    memory: Any = Kept(tmp_path)
    plan: Any = Plan()
    ledger = KeptLedger(memory, memory, Alarms(lambda *_: None))

    async def write(generation: Generation) -> Record:
        manifest = sealed(memory.vault, f"0-{generation.step % 2}", generation.step)
        said = {0: Said({"0": manifest.id}, Facts(1, "2.13", "plan"))}
        assert await ledger.write(plan, Tier.LOCAL, generation, said)
        found: Record = memory.vault.records[generation]
        return found

    fresh = Record(FIRST, None, {"0": named(noise(1), 1).id}, 1, "2.13", 1.0)
    if kept is not None:
        memory.vault.record(replace(fresh, remote=kept))
    first = await write(FIRST)
    assert first.remote == (kept is not False)
    # The next one goes there, unless the first is on its way.
    assert (await write(SECOND)).remote != first.remote
