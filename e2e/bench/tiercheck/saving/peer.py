"""Measures the restore of a job's state to a node that has none of it, from another node over a link of 1
Gbit/s.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob, Rank

from convoy_controllers.checkpoint.generation import Tier
from e2e.bench.tiercheck.saving import bulk
from e2e.bench.tiercheck.saving.link import Link, link
from e2e.bench.tiercheck.saving.memory import hub_at, node, unmount
from e2e.cluster import files

BITS_PER_SECOND = 10**9
PORT = 8472
"""Peer port of the far agent. It can be the default port, because the far agent has its own address."""
NEAR_UID = "aaaa-1111"


@dataclass(frozen=True)
class Restore:
    """Seconds of one restore, and the seconds that the link needs at least."""

    seconds: float
    link_seconds: float
    """Minimum seconds in which the link can transfer the same bytes."""


class FarHost(Host):
    """A node at the far end of the link.

    Its agent is a separate process, so that SIGKILL ends it as a node failure would.
    """

    def __init__(self, root: Path, name: str, hub: FakeHub, memory: int, cable: Link) -> None:
        super().__init__(root, name, hub, memory, cable.far)
        self.settings = dataclasses.replace(self.settings, peer_port=PORT)
        self._hub, self._cable = hub, cable
        self._process: asyncio.subprocess.Process | None = None

    @property
    def peer_address(self) -> str:
        """Address and port at which other agents reach the far agent."""
        return f"{self._cable.far}:{PORT}"

    async def start(self) -> None:
        """Start the agent and wait until it has sent Hello to the hub."""
        settings = {
            one.metadata["env"]: str(getattr(self.settings, one.name))
            for one in dataclasses.fields(self.settings)
        }
        with (self.root / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._cable.prefix, sys.executable, "-m", "convoy_agents"),
                env={**os.environ, **settings, "PYTHONPATH": str(files.CHECKOUT / "agents")},
                stdout=log,
            )
        await self._hub.until(lambda name, message: name == self.node and message.HasField("hello"))

    async def stop(self) -> None:
        """Kill the agent and delete the node's memory and files."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None
        unmount(self.root)
        shutil.rmtree(self.root)


async def measure(root: Path, size: int, times: int) -> list[Restore]:
    """Let a rank on a near node and a rank on a far node save a generation of `size` bytes together.

    Then repeat `times` times: replace the far node by an empty one, and measure the restore of the
    generation.
    """
    half = size // 2
    found: list[Restore] = []
    with link(BITS_PER_SECOND) as cable:
        async with hub_at(cable.near) as hub, node(root, hub, 8 * half) as one:
            job = MemoryJob(hub, root)
            for number in range(times + 1):
                far = FarHost(root, f"far-{number}", hub, 8 * half, cable)
                try:
                    await far.start()
                    uid = f"bbbb-{number}"
                    ranks = await job.form(number + 1, [(NEAR_UID, one), (uid, far)])
                    if number:
                        found.append(await _restore(ranks, 2 * half))
                    else:
                        await bulk.prepare(ranks, half)
                        for rank in ranks:
                            await bulk.seal(rank, await bulk.fill(rank, half), 1, half, len(ranks))
                        for rank in ranks:
                            await rank.stands(Tier.PEER, 1, 1, bulk.TIMEOUT_SECONDS)
                finally:
                    await far.stop()
    return found


async def _restore(ranks: list[Rank], size: int) -> Restore:
    """Restore both shards on the far node, which has neither."""
    near, far = ranks
    began = time.monotonic()
    _, reply = await asyncio.gather(near.restore(), far.restore())
    for shard in reply["shards"]:
        shard_reply = await far.request(type="shard", shard=shard)
        if shard_reply["type"] == "broken":
            raise RuntimeError(f"shard {shard} is incomplete: {shard_reply.body}")
    return Restore(time.monotonic() - began, 8 * size / BITS_PER_SECOND)
