"""Tests that kill agent processes, ranks, and whole nodes with their memory."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, state
from tests.integration.agents.ranks import Rank, ended, killed, train
from tests.integration.agents.test_memory import folder, job, saved
from tests.integration.leftovers import unmount_below
from tests.unit.agents import fault_proxy

from convoy_agents.csi import mounts
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Tier

__all__ = ["folder", "job"]
A, B, C, D, E = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444", "eeee-5555"
pytestmark = pytest.mark.timeout(400)
SLOW = 0.5
"""Seconds of a step: the 120 steps must still run when a busy machine has copied the first saves."""


class Machine(Host):
    """A node whose agent runs in a separate process."""

    def __init__(self, root: Path, node: str, hub: FakeHub) -> None:
        super().__init__(root, node, hub)
        self.hub = hub
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = {
            entry.metadata["env"]: str(getattr(self.settings, entry.name)) for entry in fields(self.settings)
        }
        mark = len(self.hub.messages)
        with (self.root / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "convoy_agents",
                env={**environment, "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
                stdout=log, stderr=log,
            )  # fmt: skip
        message = await self.hub.until(
            lambda node, message: node == self.node and message.HasField("hello"), mark
        )
        port = int(message.hello.peer_address.rpartition(":")[2])
        self.agent: Any = SimpleNamespace(peer_port=port)

    async def kill(self) -> None:
        """Kill the agent's process. The node's memory and mounts stay."""
        assert self.process
        self.process.kill()
        await self.process.wait()
        self.process = None

    async def die(self) -> None:
        """Kill the agent's process and remove the node's memory, as if the node died."""
        if self.process:
            await self.kill()
        self.unmount()

    async def stop(self) -> None:
        await self.die()

    def unmount(self) -> None:
        unmount_below(self.root)

    def memory(self) -> list[str]:
        """Return the uids of the jobs that have memory on this node."""
        folder = self.settings.run_dir / "memory"
        return [Path(one.target).name for one in mounts.table() if Path(one.target).parent == folder]


MachineMaker = Callable[[str], Coroutine[None, None, Machine]]


@pytest.fixture
async def machine(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> AsyncIterator[MachineMaker]:
    if os.geteuid():
        pytest.skip("bind mounts need root")
    # Use a folder with a short path, because the length of a socket's path is limited.
    with tempfile.TemporaryDirectory(prefix="cv-") as root:
        machines: list[Machine] = []

        async def make(node: str) -> Machine:
            machines.append(Machine(Path(root), node, hub))
            await machines[-1].start()
            return machines[-1]

        try:
            yield make
            for one in machines:
                await one.die()
        finally:
            unmount_below(Path(root))


@pytest.fixture
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


def still_train(*ranks: Rank) -> None:
    """Check that the ranks still run, so that the following kill by the test ends them."""
    assert not [rank.lines for rank in ranks if rank.process.returncode is not None]


async def test_trainers_and_agents_are_killed_together(
    machine: MachineMaker, hub: FakeHub, job: MemoryJob, folder: Path
) -> None:
    one, two = await machine("one"), await machine("two")
    members: list[tuple[str, Host]] = [(A, one), (B, two)]
    ranks: list[Rank] = []
    try:
        ranks += (calm := await train(folder, 1, 120, ["", ""]))
        wanted = await ended(calm)
        lines = await job.form(1, members)
        ranks += (first := await train(folder, 1, 120, [A, B], slow=SLOW))
        await first[0].until(r"STEP 4\b")
        await lines[0].until(lambda stand: stand["marks"].get(Tier.PEER.value, [0, 0]) >= [1, 4])
        least = lines[0].stand["marks"][Tier.PEER.value][1]
        for host in (one, two):
            await host.kill()
        still_train(*first)
        await killed(*first)
        for host in (one, two):
            await host.start()
        for uid, host in members:
            job.launchers[uid] = await host.launcher(uid, 1)
        await job.form(2, members)
        ranks += (second := await train(folder, 2, 120, [A, B]))
        line = await second[0].until(r"continues after step \d+ from gen-1-\d+, bit-exact")
        assert int(line.split()[3]) >= least
        assert await ended(second) == wanted
        for host in (one, two):
            assert host.memory() == [JOB]
            hub.send(host.node, drop_job=hub_pb2.DropJob(job_uid=JOB))
        await eventually(lambda: not one.memory() and not two.memory())
    finally:
        await killed(*ranks)


async def test_one_of_three_nodes_survives_and_restores_the_job(
    machine: MachineMaker, hub: FakeHub, job: MemoryJob
) -> None:
    job.copies = 2
    one, two, three, four, five = [await machine(name) for name in ("one", "two", "three", "four", "five")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two), (C, three)])
    await saved(ranks, 1, 10)
    await two.die()
    await three.die()
    again = await job.form(2, [(A, one), (D, four), (E, five)])
    for rank in again:
        assert (await rank.restore())["generation"] == [1, 10]
        for shard in (0, 1, 2):
            assert await rank.read(str(shard)) == state(10, shard)
    for rank in again:
        await rank.request(type="restored")
        await rank.reserve()
    # This save puts each shard on all three nodes again, so another two nodes may die.
    await saved(again, 2, 20)
    await one.die()
    await four.die()
    last = await job.form(3, [(E, five)])
    assert (await last[0].restore())["generation"] == [2, 20]
    for shard in (0, 1, 2):
        assert await last[0].read(str(shard)) == state(20, shard)


async def test_a_job_is_restored_from_the_store_after_all_nodes_are_killed(
    machine: MachineMaker, hub: FakeHub, job: MemoryJob, folder: Path, server: int
) -> None:
    job.store = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2)
    one, two, three, four = [await machine(name) for name in ("one", "two", "three", "four")]
    store = hub_pb2.Store(
        name="s3", version="1", endpoint=f"http://127.0.0.1:{server}", bucket=fault_proxy.BUCKET,
        path_style=True, access_key="key", secret_key="secret", conditional=True,
    )  # fmt: skip
    for host in (one, two, three, four):
        hub.send(host.node, store=store)
    ranks: list[Rank] = []
    tiers = "local,peer,remote"
    try:
        ranks += (calm := await train(folder, 1, 120, ["", ""]))
        wanted = await ended(calm)
        lines = await job.form(1, [(A, one), (B, two)])
        ranks += (first := await train(folder, 1, 120, [A, B], slow=SLOW, tiers=tiers))
        await first[0].until(r"STEP 4\b")
        await lines[0].until(lambda stand: stand["marks"].get(Tier.REMOTE.value, [0, 0]) >= [1, 4])
        least = lines[0].stand["marks"][Tier.REMOTE.value][1]
        await one.die()
        await two.die()
        still_train(*first)
        await killed(*first)
        await job.form(2, [(C, three), (D, four)])
        ranks += (second := await train(folder, 2, 120, [C, D], tiers=tiers))
        line = await second[0].until(r"continues after step \d+ from gen-1-\d+, bit-exact")
        assert int(line.split()[3]) >= least
        assert await ended(second) == wanted
    finally:
        await killed(*ranks)
