"""Tests of a generation that one rank could not save. The agents abandon the generation, and drop its other
shards and their copies.
"""

from __future__ import annotations

import dataclasses

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import JOB, SIZE, MemoryJob, Rank, held, until_held
from tests.integration.agents.test_memory import A, B, folder, job, saved

from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_controllers.checkpoint.generation import Generation

__all__ = ["folder", "job"]

ROOM = 4 * SIZE + 9 * 2**20
"""Bytes of memory for two buffers, two copies and their metadata. A third copy does not fit, so another
generation can be copied only after the copies of an abandoned one were dropped.
"""


async def start_job(make_host: HostMaker, job: MemoryJob) -> tuple[Host, Host, list[Rank]]:
    """Start a job on two nodes, with a memory limit of ROOM, and save step 10. Return the nodes and the
    ranks.
    """
    one, two = await make_host("one"), await make_host("two")
    job.limit = ROOM
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    return one, two, ranks


async def abandoned(one: Host, two: Host, ranks: list[Rank], step: int) -> None:
    """Let rank 1 save the step, wait for the copy of its shard, and let rank 0 abandon the step. Wait until
    rank 1's agent has dropped its shard.
    """
    assert (await ranks[1].save(step))["type"] == "sealed"
    await until_held(one, {(Generation(1, step), "1")})
    assert (await ranks[0].request(type="abandon", step=step))["type"] == "noted"
    await ranks[1].until(lambda stand: [1, step] not in stand["holds"])


async def test_copies_of_an_abandoned_generation_are_dropped(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, ranks = await start_job(make_host, job)
    await abandoned(one, two, ranks, 20)
    await saved(ranks, 1, 30)
    assert await held(one) == await held(two) == {(Generation(1, 30), "0"), (Generation(1, 30), "1")}


async def test_crashed_agents_remember_abandoned_generations_and_copy_owners(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, ranks = await start_job(make_host, job)
    await abandoned(one, two, ranks, 20)
    for host in (one, two):
        port = host.agent.peer_port
        await host.crash()
        host.settings = dataclasses.replace(host.settings, peer_port=port)
        await host.start()
    assert (Generation(1, 20), "1") in await held(one)
    await saved(ranks, 1, 30)
    assert (Generation(1, 20), "1") not in await held(one)


async def test_two_consecutive_abandoned_steps_are_both_notified(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    await ranks[0].save(20)
    # Stop slot 0's agent, so that slot 1's agent must remember both abandoned steps.
    port = one.agent.peer_port
    await one.crash()
    for step in (20, 25):
        assert (await ranks[1].request(type="abandon", step=step))["type"] == "noted"
    one.settings = dataclasses.replace(one.settings, peer_port=port)
    await one.start()
    await ranks[0].until(lambda stand: [1, 20] not in stand["holds"])
    await saved(ranks, 1, 30)


async def test_a_node_cannot_withdraw_foreign_or_committed_shards(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    assert (await ranks[1].save(20))["type"] == "sealed"
    copy = (Generation(1, 20), "1")
    await until_held(one, {copy})
    job_memory = one.agent.memory_manager.open(JOB)

    def every(store: ShardStore) -> list[str]:
        return list(store.manifests)

    before = await held(one)
    await job_memory.drop_withdrawn("three", await job_memory.inspect(every), 1)
    await job_memory.drop_withdrawn("two", await job_memory.inspect(every), 2)
    assert await held(one) == before
    await job_memory.drop_withdrawn("two", await job_memory.inspect(every), 1)
    await job_memory.drop_withdrawn("two", await job_memory.inspect(every), 1)
    assert await held(one) == before - {copy}, "what the watermark stands on stays"
