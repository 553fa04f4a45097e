"""Measures transfers between two nodes: the copies of a shard, and the restore of a job's state to an empty
node. A plain program that moves as many bytes is the bound.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob, Rank

from convoy_controllers.checkpoint.generation import Tier
from e2e.bench.tiercheck.saving import bulk, stream, warm
from e2e.bench.tiercheck.saving.link import Link, link
from e2e.bench.tiercheck.saving.memory import hub_at, node, unmount
from e2e.cluster import files

BITS_PER_SECOND = 10**9
PORT = 8472
"""Peer port of the far agent. It can be the default port, because the far agent has its own address."""
STREAM_PORT = 8473
"""Port of the plain program at the far end."""
NEAR_UID = "aaaa-1111"
MIN_ROUNDS = 5
SMALL_BYTES = 2**20
"""Size of the far rank's shard while only the near rank's copy is measured."""


@dataclass
class Transfers:
    """The seconds of repeated transfers over one link. Each list has one value per round."""

    bits_per_second: int
    """Speed of the link; 0 if only the processors limit it."""
    restore_bytes: int
    copy_bytes: int
    warm_bytes: int = 0
    """Bytes of memory that are touched and freed before each transfer, so that its time excludes the
    host's time for the pages (warm.py).
    """
    restores: list[float] = field(default_factory=list)
    """Restores of `restore_bytes` to a node that has none of them."""
    copies: list[float] = field(default_factory=list)
    """Copies of `copy_bytes` to another node, from the seal of the shard to the commit of its copies."""
    streams: list[float] = field(default_factory=list)
    """Transfers of `restore_bytes` by a plain program without TLS."""
    tls_streams: list[float] = field(default_factory=list)
    """Transfers of `restore_bytes` by a plain program with TLS."""


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


async def measure(root: Path, size: int, times: int) -> list[Transfers]:
    """Measure transfers of a job's state of `size` bytes, over a link of BITS_PER_SECOND and over a link
    without a limit. Make at least MIN_ROUNDS rounds.
    """
    found = []
    for number, bits in enumerate((BITS_PER_SECOND, 0)):
        folder = root / str(number)
        folder.mkdir(parents=True)
        found.append(await _measure(folder, size, max(times, MIN_ROUNDS), bits))
    return found


async def _measure(root: Path, size: int, times: int, bits_per_second: int) -> Transfers:
    """Let a rank on a near node and a rank on a far node save generations together, of which the near node
    must copy half of `size` bytes. Save one more, of `size` bytes in two halves.

    Then repeat `times` times: replace the far node by an empty one, and measure the restore of the last
    generation.
    """
    half = size // 2
    found = Transfers(bits_per_second, 2 * half, half)
    if not bits_per_second:
        found.warm_bytes = 5 * half // 2
    with link(bits_per_second) as cable:
        async with hub_at(cable.near) as hub, node(root, hub, 8 * half) as one:
            job = MemoryJob(hub, root)
            for number in range(times + 1):
                far = FarHost(root, f"far-{number}", hub, 8 * half, cable)
                try:
                    await far.start()
                    uid = f"bbbb-{number}"
                    ranks = await job.form(number + 1, [(NEAR_UID, one), (uid, far)])
                    if number:
                        for tls, seconds in ((False, found.streams), (True, found.tls_streams)):
                            work = partial(stream.measure, cable, root, 2 * half, STREAM_PORT, tls=tls)
                            seconds.append(await asyncio.to_thread(work))
                        found.restores.append(await _restore(ranks, found.warm_bytes))
                    else:
                        await bulk.prepare(ranks, half)
                        found.copies += [
                            await _copy(ranks, step, half, found.warm_bytes) for step in range(1, times + 1)
                        ]
                        await _save(ranks, times + 1, half)
                finally:
                    await far.stop()
    return found


async def _save(ranks: list[Rank], step: int, size: int) -> None:
    """Save a generation in which each rank has `size` bytes, and wait for its copies."""
    for rank in ranks:
        await bulk.seal(rank, await bulk.fill(rank, size), step, size, len(ranks))
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, step, bulk.TIMEOUT_SECONDS)


async def _copy(ranks: list[Rank], step: int, size: int, warm_bytes: int) -> float:
    """Save a generation in which the near rank has `size` bytes and the far rank almost none. Return the
    seconds from the near rank's seal to the commit of the copies.
    """
    near, far = ranks
    await bulk.seal(far, await bulk.fill(far, SMALL_BYTES), step, SMALL_BYTES, len(ranks))
    buffer = await bulk.fill(near, size)
    await warm.touch(warm_bytes)
    await bulk.seal(near, buffer, step, size, len(ranks))
    began = time.monotonic()
    await near.stands(Tier.PEER, 1, step, bulk.TIMEOUT_SECONDS)
    return time.monotonic() - began


async def _restore(ranks: list[Rank], warm_bytes: int) -> float:
    """Restore both shards on the far node, which has neither. Return the seconds."""
    near, far = ranks
    await warm.touch(warm_bytes)
    began = time.monotonic()
    _, reply = await asyncio.gather(near.restore(), far.restore())
    for shard in reply["shards"]:
        shard_reply = await far.request(type="shard", shard=shard)
        if shard_reply["type"] == "broken":
            raise RuntimeError(f"shard {shard} is incomplete: {shard_reply.body}")
    return time.monotonic() - began
