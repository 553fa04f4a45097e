"""A job whose fake ranks save to the memory of real agents."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.agents.harness import TIMEOUT, FakeHub, Host, Pod, assignment

from convoy_agents import metrics
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.placement import Host as Candidate
from convoy_controllers.checkpoint.placement import place
from convoy_workloads.runtime.tiers.memory_client import MemoryClient

JOB = "uid-of-job"
SIZE = 9 * 2**20 + 4096
"""Bytes of a shard of a full save. The agent splits it into three chunks."""
SEGMENT = 3 * 4096
"""Bytes of a journal segment."""


def state(step: int, shard: int) -> bytes:
    """Return the bytes that the rank with this shard saves after a step."""
    return random.Random(step * 1000 + shard).randbytes(4096) * (SIZE // 4096)


def segment(step: int, shard: int) -> bytes:
    """Return the bytes of the journal segment that the rank with this shard saves after a step."""
    return random.Random(step * 1000 + shard + 500).randbytes(SEGMENT)


@dataclass
class Response:
    """An agent's response to a memory request. The files that the agent passed with it are mapped into
    memory.
    """

    body: dict[str, Any]
    areas: list[mmap.mmap]

    def __getitem__(self, name: str) -> Any:
        return self.body[name]


@dataclass
class Rank:
    """A fake rank with a memory connection to its agent."""

    line: MemoryClient
    number: int
    buffers: dict[str, mmap.mmap] = field(default_factory=dict)
    stand: dict[str, Any] = field(default_factory=dict)

    async def request(self, **message: Any) -> Response:
        response, files = await asyncio.to_thread(self.line.request, message, TIMEOUT)
        areas = []
        for fd in files:
            access = mmap.PROT_READ | (mmap.PROT_WRITE if response["type"] == "buffers" else 0)
            areas.append(mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, access))
            os.close(fd)
        return Response(response, areas)

    async def reserve(self, size: int = SIZE) -> Response:
        answer = await self.request(type="reserve", size=size)
        if answer["type"] == "buffers":
            self.buffers = dict(zip(answer["names"], answer.areas, strict=True))
        return answer

    async def save(self, step: int, plan: str = "same") -> Response:
        """Wait for a buffer to which the rank may write, write the rank's state after a step into it, and
        seal the buffer.
        """
        await self.until(lambda stand: bool(stand["buffer"]))
        buffer = self.stand["buffer"]
        self.buffers[buffer][:SIZE] = state(step, self.number)
        return await self.request(
            type="seal", buffer=buffer, step=step, length=SIZE, world=2, torch="2.13", plan=plan
        )

    async def reserve_segments(self, count: int, size: int = SEGMENT) -> Response:
        answer = await self.request(type="reserve", size=size, segments=count)
        if answer["type"] == "buffers":
            self.buffers |= dict(zip(answer["names"], answer.areas, strict=True))
        return answer

    async def journal(self, step: int, extends: list[int]) -> Response:
        """Write the rank's journal segment after a step into a writable segment buffer, and seal the
        buffer. `extends`: the incarnation and the step of the save that the segment extends.
        """
        await self.until(lambda stand: bool(stand["segments"]))
        buffer = self.stand["segments"][0]
        self.buffers[buffer][:SEGMENT] = segment(step, self.number)
        return await self.request(
            type="seal",
            buffer=buffer,
            step=step,
            length=SEGMENT,
            world=2,
            torch="2.13",
            plan="same",
            extends=extends,
        )

    async def until(self, holds: Any, seconds: float = TIMEOUT) -> dict[str, Any]:
        """Poll the agent for the status of the rank's saves until `holds` accepts the status, and return
        the status.
        """
        deadline = time.monotonic() + seconds
        known = ""
        while True:
            known = (await self.request(type="poll", known=known))["status"]
            self.stand = json.loads(known)
            if holds(self.stand):
                return self.stand
            assert time.monotonic() < deadline, self.stand

    async def stands(self, tier: Tier, incarnation: int, step: int, seconds: float = TIMEOUT) -> None:
        await self.until(lambda stand: stand["marks"].get(tier.value) == [incarnation, step], seconds)

    async def restore(
        self, attempt: int = 0, broken: list[list[str]] | None = None, *, bases: bool = False
    ) -> Response:
        return await self.request(type="restore", attempt=attempt, broken=broken or [], bases=bases)

    async def read_chain(self, shard: str) -> list[bytes]:
        """Return the bytes of a shard's full save and of its segments."""
        answer = await self.request(type="shard", shard=shard)
        return [bytes(area[:length]) for area, length in zip(answer.areas, answer["lengths"], strict=True)]

    async def read(self, shard: str) -> bytes | list[list[str]]:
        """Return a shard's bytes. If no node could provide them, return the pairs (node, shard id) that
        could not be read.
        """
        answer = await self.request(type="shard", shard=shard)
        if answer["type"] == "broken":
            return list(answer["broken"])
        return bytes(answer.areas[0][: answer["lengths"][0]])


@dataclass
class MemoryJob:
    """A job with pods on several hosts. It sends the hub's messages for the job."""

    hub: FakeHub
    folder: Path
    copies: int = 1
    limit: int = 0
    store: hub_pb2.StoreUse | None = None
    processes: int = 1
    """Number of ranks per pod."""
    by_default: bool = False
    """True for a job that has no tiers in its spec."""
    name: str = "job"
    namespace: str = "default"
    launchers: dict[str, Pod] = field(default_factory=dict)

    async def form(self, incarnation: int, members: list[tuple[str, Host]], holders: Any = ()) -> list[Rank]:
        """Form an incarnation with one pod per member, and return its ranks. The ranks have not restored a
        state yet. `holders`: other nodes that hold checkpoints of the job.
        """
        for uid, host in members:
            if uid not in self.launchers:
                await host.publish(uid)
                self.launchers[uid] = await host.launcher(uid)
                await self.hub.report(uid, lambda report: report.launcher_connected)
        await self.assign(incarnation, members, holders)
        for uid, _ in members:
            assert (await self.launchers[uid].receive())["incarnation"] == incarnation
        return [self.rank(uid, host, slot, incarnation) for slot, (uid, host) in enumerate(members)]

    async def assign(self, incarnation: int, members: list[tuple[str, Host]], holders: Any = ()) -> None:
        """Send the assignment of each pod."""
        placed = place([Candidate(host.node) for _, host in members], self.copies)
        hosts = {host.node: host for _, host in members}
        for slot, (_, host) in enumerate(members):
            whole = [(uid, host, self.processes) for uid, host in members]
            plan = assignment(self.name, incarnation, slot, whole, namespace=self.namespace)
            plan.memory.copies = min(self.copies, len(members) - 1)
            plan.memory.limit = self.limit
            plan.memory.by_default = self.by_default
            if self.store:
                plan.memory.store.CopyFrom(self.store)
            plan.memory.hosts.extend(at(hosts[node]) for node in placed[host.node].hosts)
            if not slot:
                plan.memory.holders.extend(at(one) for one in holders)
            self.hub.send(host.node, assignment=plan)

    def rank(self, uid: str, host: Host, number: int, incarnation: int) -> Rank:
        # Use a symbolic link with a short path, because the path of a test's folder is too long for a socket
        # address.
        short = self.folder / f"{uid[:8]}-{incarnation}"
        if not short.is_symlink():
            short.symlink_to(host.target(uid))
        hello = {"type": "hello", "role": "memory", "incarnation": incarnation, "rank": number}
        return Rank(MemoryClient(str(short / "agent.sock"), hello), number)

    async def start_incarnation(
        self, incarnation: int, members: list[tuple[str, Host]], **more: Any
    ) -> list[Rank]:
        """Form an incarnation. Its ranks restore the newest state and reserve their buffers."""
        ranks = await self.form(incarnation, members, **more)
        for rank in ranks:
            found = await rank.restore()
            for shard in found["shards"]:
                assert isinstance(await rank.read(shard), bytes)
        for rank in ranks:
            assert (await rank.request(type="restored"))["type"] == "done"
            assert (await rank.reserve())["type"] == "buffers"
        return ranks


async def saved(ranks: list[Rank], incarnation: int, step: int, *tiers: Tier) -> None:
    """Save the state after a step on all ranks, and wait until it is committed at these tiers."""
    for rank in ranks:
        assert (await rank.save(step))["type"] == "sealed"
    for rank in ranks:
        for tier in tiers:
            await rank.stands(tier, incarnation, step)


async def reads(ranks: list[Rank]) -> list[dict[str, bytes]]:
    """Let all ranks restore. Return for each rank the restored bytes by shard."""
    found = []
    for rank in ranks:
        answer = await rank.restore()
        assert answer["type"] == "restore", answer.body
        shards = {shard: await rank.read(shard) for shard in answer["shards"]}
        assert all(isinstance(data, bytes) for data in shards.values())
        found.append(shards)
    return found  # type: ignore[return-value]


def at(host: Host) -> hub_pb2.NodeAddress:
    return hub_pb2.NodeAddress(node=host.node, peer_address=host.peer_address)


async def held(host: Host) -> set[tuple[Generation, str]]:
    """Return the (generation, shard name) pairs of all shards in a node's memory."""
    job_memory = host.agent.memory_manager.get(JOB)
    assert job_memory is not None
    return await job_memory.inspect(
        lambda store: {(one.generation, one.shard) for one in store.manifests.values()}
    )


async def until_held(host: Host, wanted: set[tuple[Generation, str]]) -> None:
    """Wait until a node's memory contains all shards in `wanted`, given as (generation, shard name) pairs."""
    job_memory = host.agent.memory_manager.get(JOB)
    assert job_memory is not None

    def there(store: Any) -> bool | None:
        return wanted <= {(one.generation, one.shard) for one in store.manifests.values()} or None

    assert await job_memory.wait_until(there, TIMEOUT)


async def damage(host: Host, shard: str, generation: Generation, at_byte: int = 5000) -> None:
    """Flip one bit at the offset `at_byte` of a shard in a node's memory."""
    job_memory = host.agent.memory_manager.get(JOB)
    assert job_memory is not None

    def flip(store: Any) -> None:
        for key, one in store.manifests.items():
            if (one.shard, one.generation) == (shard, generation):
                with store.path(key).open("r+b") as file:
                    file.seek(at_byte)
                    byte = file.read(1)[0]
                    file.seek(at_byte)
                    file.write(bytes([byte ^ 1]))
                return
        raise AssertionError(f"{shard} of {generation} is not on {host.node}")

    await job_memory.use(flip)


def travelled(path: str) -> dict[str, float]:
    """Return the bytes of the chunks that all agents of this process have transferred over `path` ("store"
    or "peer"): before encoding (raw) and on the network (sent).
    """
    name = "convoy_agent_checkpoint_travelled_bytes_total"
    kinds = ("raw", "sent")
    return {
        kind: metrics.REGISTRY.get_sample_value(name, {"path": path, "bytes": kind}) or 0 for kind in kinds
    }


def counted() -> dict[str, float]:
    """Return metrics of all agents of this process. They are the restores and uploads by outcome, and the
    number of copies, restores and uploads whose duration was measured.
    """
    value = metrics.REGISTRY.get_sample_value
    found = {
        label: value(f"convoy_agent_checkpoint_{what}_total", {name: label}) or 0
        for what, name, labels in (
            ("restores", "outcome", ("found", "fresh", "lost")),
            ("uploads", "result", ("stored",)),
        )
        for label in labels
    }
    for what in ("copy", "restore", "upload"):
        found[what] = value(f"convoy_agent_checkpoint_{what}_seconds_count") or 0
    return found


def since(before: dict[str, float]) -> dict[str, float]:
    """Return how much each metric of `counted` has increased since `before`. Metrics that have not changed
    are left out.
    """
    return {what: count - before[what] for what, count in counted().items() if count != before[what]}
