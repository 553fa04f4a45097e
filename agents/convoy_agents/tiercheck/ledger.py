"""The records of generations in memory, as the agent of slot 0 writes them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog

from convoy_agents.desk import Said
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.vault import Vault
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

log = structlog.get_logger()


class KeptLedger:
    """Beside the shards, in the same memory: the slots that have asked take the record along."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def stands(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """The record of a generation that stands at the tier already."""
        holding = self._keeper.get(job_uid)
        if holding is None:
            return None

        def look(vault: Vault) -> Record | None:
            record = vault.records.get(meant(vault, generation))
            mark = vault.marks.get(tier)
            return record if record and mark and mark >= record.generation else None

        return await holding.look(look)

    async def write(
        self, plan: Assignment, tier: Tier, generation: Generation, said: Mapping[int, Said]
    ) -> bool:
        """Writes a generation down, or that it has its copies. OSError.

        False when its slots contradict one another, or it stands nowhere yet.
        """
        holding = self._keeper.open(plan.job_uid)
        if tier is Tier.LOCAL:
            parent = await holding.look(lambda vault: vault.marks.get(Tier.LOCAL))
            record = _record(plan, generation, parent, said)
        else:
            record = await holding.look(lambda vault: vault.records.get(meant(vault, generation)))
        if record is None:
            return False
        return await holding.committed(record, plan.incarnation, *stands_at(plan, tier))


def stands_at(plan: Assignment, tier: Tier) -> tuple[Tier, ...]:
    """Where a generation stands with this tier: without copies nothing more is waited for."""
    alone = tier is Tier.LOCAL and not (plan.memory and plan.memory.copies)
    return (Tier.LOCAL, Tier.PEER) if alone else (tier,)


def meant(vault: Vault, generation: Generation) -> Generation:
    """What the incarnation began with counts as its own, at the step where it began."""
    branch = vault.branches.get(generation.incarnation)
    start = branch.parent if branch else None
    return start if start is not None and start.step == generation.step else generation


def _record(
    plan: Assignment, generation: Generation, parent: Generation | None, said: Mapping[int, Said]
) -> Record | None:
    facts = {one.facts for one in said.values()}
    shards = {shard: key for one in said.values() for shard, key in one.shards.items()}
    if len(facts) != 1 or len(shards) != plan.world_size:
        log.error("slots contradict one another", job=plan.job, facts=sorted(facts), shards=len(shards))
        return None
    world, torch, _ = next(iter(facts))
    return Record(generation, parent, shards, world, torch, time.time())
