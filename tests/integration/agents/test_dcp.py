"""Tests of programs that save with torch.distributed.checkpoint to the memory of real agents' nodes."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.dcp_program import described, made
from tests.integration.agents.harness import FakeHub
from tests.integration.agents.memory_job import MemoryJob, damage
from tests.integration.agents.ranks import Rank, killed, socket_of, variables
from tests.integration.agents.ranks import start as start_rank
from tests.integration.agents.test_memory import A, B, C, folder, job
from tests.ports import free_port

from convoy_agents.tiercheck import restoring
from convoy_controllers.checkpoint.generation import Generation

__all__ = ["folder", "job"]

pytestmark = pytest.mark.timeout(300)

Start = Callable[..., Coroutine[Any, Any, list[Rank]]]
PROGRAM = Path(__file__).with_name("dcp_program.py")
PAIR = [(3, 7), (5, 7)]
"""The steps to save, each with the number of rows of the large tensor at that step."""


@pytest.fixture
async def start(folder: Path) -> AsyncIterator[Start]:
    """Yield a function that starts a program's ranks. At the end, kill all ranks."""
    ranks: list[Rank] = []

    async def start_ranks(incarnation: int, uids: list[str], slow: str = "", **wish: Any) -> list[Rank]:
        port = free_port()
        for rank, uid in enumerate(uids):
            environment = {
                **variables(rank, len(uids), port, incarnation, socket_of(folder, uid, incarnation)),
                "SLOW": slow,
            }
            if uid:
                environment["CONVOY_CHECKPOINT_TIERS"] = "local,peer"
            ranks.append(await start_rank(PROGRAM, json.dumps(wish), environment))
        return ranks[-len(uids) :]

    yield start_ranks
    await killed(*ranks)


async def wait_for_output(ranks: list[Rank], pattern: str) -> None:
    for rank in ranks:
        await rank.until(pattern)


def found(step: int) -> str:
    return rf"FOUND {step} {described(made(step))}"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_checkpoint_loads_with_other_ranks_and_another_sharding(
    make_host: HostMaker, job: MemoryJob, start: Start, asynchronous: bool
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await job.form(1, [(A, one), (B, two)])
    first = await start(1, [A, B], boxes=0, steps=PAIR, asynchronous=asynchronous)
    for pattern in (found(0), "SAVED 3 True", "SAVED 5 True", "END"):
        await wait_for_output(first, pattern)
    await job.form(2, [(A, one), (B, two)])
    await wait_for_output(await start(2, [A, B], boxes=1, steps=[]), found(5))
    await job.form(3, [(A, one)])
    alone = await start(3, [A], boxes=-1, steps=[(9, 7)], asynchronous=asynchronous)
    for pattern in (found(5), "SAVED 9 True", "END"):
        await wait_for_output(alone, pattern)
    await job.form(4, [(A, one), (B, two)])
    await wait_for_output(await start(4, [A, B], boxes=0, steps=[]), found(9))


async def test_a_broken_shard_is_restored_from_its_copy_or_the_previous_save(
    make_host: HostMaker, job: MemoryJob, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "FETCH_SECONDS", 2.0)
    one, two = await make_host("one"), await make_host("two")
    await job.form(1, [(A, one), (B, two)])
    (tmp_path / "go-3").touch()
    ranks = await start(1, [A, B], boxes=0, steps=PAIR, wait=str(tmp_path / "go"), timeout=5.0)
    await wait_for_output(ranks, "SAVED 3 True")
    # Refuse all copies of the next generation. Each of its shards is then only on the node that saved it.
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 0
    (tmp_path / "go-5").touch()
    await wait_for_output(ranks, "SAVED 5 True")
    await damage(two, "1", Generation(1, 5))
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 2**30
    await job.form(2, [(A, one), (B, two)])
    await wait_for_output(await start(2, [A, B], boxes=-1, steps=[]), found(3))
    await damage(one, "0", Generation(1, 3))
    await job.form(3, [(A, one), (B, two)])
    await wait_for_output(await start(3, [A, B], boxes=1, steps=[]), found(3))


async def test_all_ranks_refuse_an_oversized_save_and_accept_a_smaller_one(
    make_host: HostMaker, hub: FakeHub, folder: Path, start: Start
) -> None:
    job = MemoryJob(hub, folder, limit=12 * 2**20)
    one, two = await make_host("one"), await make_host("two")
    await job.form(1, [(A, one), (B, two)])
    ranks = await start(1, [A, B], boxes=0, steps=[(3, 300_000), (5, 7)])
    await wait_for_output(ranks, "REFUSED 3 .*more bytes are needed")
    await wait_for_output(ranks, "SAVED 5 True")


@pytest.mark.parametrize("pods", [[A, B], [A, A]], ids=["in pods of their own", "in one pod"])
async def test_a_save_that_fails_on_one_rank_frees_all_buffers(
    make_host: HostMaker, job: MemoryJob, start: Start, pods: list[str]
) -> None:
    one, two = await make_host("one"), await make_host("two")
    hosts = {A: one, B: two}
    job.processes = 2 // len(set(pods))
    await job.form(1, [(uid, hosts[uid]) for uid in sorted(set(pods))])
    steps = [(step, 7) for step in (2, 3, 4, 5, 6)]
    ranks = await start(1, pods, boxes=0, steps=steps, broken=[3, 5])
    # Each pattern must appear in time. If a failed save occupied its buffer, the next save would have to wait
    # until the agent gives the failed save up.
    for pattern in (
        "SAVED 2 True",
        r"REFUSED 3 .*own.*object",
        "SAVED 4 True",
        "REFUSED 5",
        "SAVED 6 True",
        "END",
    ):
        await wait_for_output(ranks, pattern)


async def test_a_loop_saves_on_request_to_leave_and_resumes_bit_for_bit(
    make_host: HostMaker, job: MemoryJob, start: Start
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    calm = await start(1, ["", ""], total=30)
    wanted = {await rank.until(r"BITS \w+") for rank in calm}
    assert len(wanted) == 1
    await job.form(1, [(A, one), (B, two)])
    first = await start(1, [A, B], total=30, slow="0.05")
    await first[0].until(r"STEP 7\b")
    first[1].process.send_signal(signal.SIGTERM)
    for rank in first:
        assert await rank.process.wait() == 75
    await two.stop()
    await job.form(2, [(A, one), (C, three)])
    second = await start(2, [A, C], total=30)
    await second[0].until(r"continues after step ([7-9]|1\d) from gen-1-\d+, saved by 2 ranks")
    assert {await rank.until(r"BITS \w+") for rank in second} == wanted
    await wait_for_output(second, "END")
