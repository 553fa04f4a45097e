"""Random schedules of a job whose replicas replicate: an unreliable network, crashes, joins and drains.

`python -m tests.unit.workloads.replication.simulation --seconds 600` runs schedules for a while, and prints
the seed of each that breaks a promise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import pickle
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.workloads.replication.virtual_time import run

from convoy_workloads.serving.replication.frames import decode, encode
from convoy_workloads.serving.replication.log import MAX_EARLY
from convoy_workloads.serving.replication.messages import Busy, Confirm, Message, Pull, Push, Supply
from convoy_workloads.serving.replication.operation import Operation, Stamp
from convoy_workloads.serving.replication.recovery import dump, load
from convoy_workloads.serving.replication.replicator import Replicator
from convoy_workloads.serving.replication.settings import NotAppended, Settings
from convoy_workloads.serving.replication.transport import Unreachable

REPAIR_SECONDS = 20.0
"""Seconds without a fault after which the replicas must have exchanged what they have."""
TIMEOUT = 1.0
"""Seconds after which a request counts as lost."""
KEYS = 12


class Disk:
    """The disk of a replica."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.known = b""
        self.values: dict[bytes, bytes | None] = {}


class MemoryStore:
    """An engine that keeps values in memory, and its log on a disk."""

    def __init__(self, disk: Disk, job: Job) -> None:
        self.disk, self.job = disk, job
        self.values = dict(disk.values)
        self.alive = True
        self.restored = 0

    async def log(self, operations: Sequence[Operation]) -> None:
        await asyncio.sleep(self.job.random.uniform(0, 0.01))
        if not self.alive:
            raise OSError("the process has ended")
        if self.job.random.random() < self.job.log_errors:
            self.disk.operations += operations[: self.job.random.randrange(len(operations) + 1)]
            self.job.record(operations)
            raise OSError("the disk is full")
        self.disk.operations += operations
        self.job.record(operations)

    def apply(self, operations: Sequence[Operation]) -> None:
        for one in operations:
            self.values[one.key] = one.payload

    async def payloads(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        await asyncio.sleep(self.job.random.uniform(0, 0.1))
        assert self.values.keys() >= set(keys), "lost in the engine"
        return [self.values[key] for key in keys]

    def snapshot(self) -> AsyncIterator[bytes] | None:
        if not self.job.snapshots:
            return None
        data = pickle.dumps(self.values)

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 100):
                await asyncio.sleep(self.job.random.uniform(0, 0.2))
                yield data[at : at + 100]

        return parts()

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        data = b"".join([part async for part in parts])
        self.values = pickle.loads(data)
        self.restored += 1


class Node:
    """A process of a replica."""

    def __init__(self, job: Job, address: str, disk: Disk) -> None:
        self.job, self.address, self.disk = job, address, disk
        self.store = MemoryStore(disk, job)
        settings = job.settings
        log = load(disk.known, disk.operations, settings.retained_bytes)
        for one in disk.operations:
            if log.stamp(one.key) == one.stamp:
                self.store.values[one.key] = one.payload
        skew = job.random.uniform(-10_000, 10_000)
        self.replicator = job.kind(
            self.store,
            MemoryTransport(self),
            settings,
            recovered=log,
            now=lambda: int(1e12 + skew + asyncio.get_running_loop().time() * 1000),
            source=job.random,
        )
        self.drains = False
        self.alive = True
        self.task = asyncio.ensure_future(self.replicator.run())

    def persist(self) -> None:
        """Store what the replica knows, so that its log starts anew. A replica that catches up stores
        nothing, because its log knows operations that wait for the state of a peer.
        """
        if not self.replicator.caught_up.is_set():
            return
        self.disk.known, self.disk.values = dump(self.replicator.log), dict(self.store.values)
        self.disk.operations = []

    def end(self) -> None:
        """End the process at once."""
        self.alive = self.store.alive = False
        self.task.cancel()

    def check(self) -> None:
        """Check the bounds."""
        replicator, settings = self.replicator, self.job.settings
        assert replicator.unacknowledged <= settings.waiting_operations
        assert replicator.log.retained_bytes <= settings.retained_bytes
        assert replicator.log.early <= MAX_EARLY
        if self.task.done() and self.alive:
            self.task.result()
            raise AssertionError("the replicator has ended")


class MemoryTransport:
    """The way from one node to the others."""

    def __init__(self, node: Node) -> None:
        self.node, self.job = node, node.job

    async def push(self, address: str, message: Push) -> Confirm:
        found = await self._exchange(address, message, lambda node: node.replicator.on_push)
        assert isinstance(found, Confirm)
        return found

    async def pull(self, address: str, message: Pull) -> Supply:
        found = await self._exchange(address, message, lambda node: node.replicator.on_pull)
        assert isinstance(found, Supply)
        return found

    async def _exchange(
        self, address: str, message: Push | Pull, handler: Callable[[Node], Callable[[Any], Message]]
    ) -> Message:
        frame = encode(message)

        def handle() -> bytes:
            return encode(handler(self._target(address))(decode(frame)))

        await self._travel(address)
        reply = handle()
        if self.job.random.random() < self.job.repetition:
            asyncio.get_running_loop().call_later(self.job.random.uniform(0, 3), _quietly, handle)
        await self._travel(address)
        found = decode(reply)
        if isinstance(found, Busy):
            raise Unreachable("is busy")
        return found

    async def state(self, address: str, message: Pull) -> AsyncIterator[Message]:
        await self._travel(address)
        parts = self._target(address).replicator.on_state(decode(encode(message)))  # type: ignore[arg-type]
        async with contextlib.aclosing(parts) as found:  # type: ignore[type-var]
            async for part in found:
                await self._travel(address, loss=self.job.loss / 300)
                self._target(address)
                yield decode(encode(part))

    def _target(self, address: str) -> Node:
        found = self.job.nodes.get(address)
        if found is None or not found.alive:
            raise Unreachable("the connection is refused")
        return found

    async def _travel(self, address: str, loss: float | None = None) -> None:
        """Let a message travel one way."""
        job = self.job
        if job.cut(self.node.address, address) or job.random.random() < (job.loss if loss is None else loss):
            await asyncio.sleep(TIMEOUT)
            raise Unreachable("does not respond")
        slow = job.slow.get(address, 1.0)
        await asyncio.sleep(slow * job.random.uniform(0.0005, 0.02))
        self._target(address)


def _quietly(handle: Callable[[], bytes]) -> None:
    with contextlib.suppress(Unreachable):
        handle()


@dataclass
class Job:
    """A job with its replicas, its network and its operator."""

    random: random.Random
    kind: type[Replicator] = Replicator
    settings: Settings = field(default_factory=Settings)
    snapshots: bool = True
    loss: float = 0.1
    repetition: float = 0.1
    log_errors: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    parted: set[str] = field(default_factory=set)
    """Addresses that reach only each other."""
    made: dict[tuple[bytes, int], Operation] = field(default_factory=dict)
    by_rank: dict[Any, Operation] = field(default_factory=dict)
    markers: dict[bytes, Stamp] = field(default_factory=dict)
    """The first stamp of each batch, by its first key."""
    acknowledged: list[Operation] = field(default_factory=list)
    refused: int = 0
    fault_at: float = 0.0
    numbers: Iterator[int] = field(default_factory=itertools.count)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def live(self) -> list[Node]:
        """The nodes that serve, or will."""
        return [one for one in self.nodes.values() if not one.drains]

    def cut(self, one: str, other: str) -> bool:
        return (one in self.parted) != (other in self.parted)

    def spawn(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def start(self, disk: Disk | None = None, address: str = "") -> Node:
        address = address or f"n{next(self.numbers)}:1"
        node = self.make_node(address, disk)
        self.nodes[address] = node
        self.report()
        return node

    def make_node(self, address: str, disk: Disk | None) -> Node:
        """Return a process of a replica. `disk`: that of the process before it."""
        return Node(self, address, disk or Disk())

    def report(self) -> None:
        """Let the operator report the peers, to each node after a while of its own."""
        for node in self.nodes.values():
            self.spawn(self._report(node))

    async def _report(self, node: Node) -> None:
        await asyncio.sleep(self.random.uniform(0, 2))
        if node.alive:
            node.replicator.set_peers(node.address, [one.address for one in self.live])

    def record(self, operations: Sequence[Operation]) -> None:
        """Record operations that a replica logs."""
        for one in operations:
            self.made[one.stamp.origin, one.stamp.sequence] = one
            self.by_rank[one.stamp.rank] = one
            self.markers.setdefault(one.key, one.stamp)

    async def write(self) -> None:
        """Append a batch at a random node."""
        node = self.random.choice(list(self.nodes.values()))
        marker = f"m{next(self.numbers)}".encode()
        entries: list[tuple[bytes, bytes | None]] = [(marker, self.value())]
        for _ in range(self.random.randrange(4)):
            key = f"k{self.random.randrange(KEYS)}".encode()
            entries.append((key, None if self.random.random() < 0.2 else self.value()))
        try:
            await node.replicator.append(entries)
        except NotAppended:
            self.refused += 1
            return
        if not node.alive:
            return
        first = self.markers[marker]
        for number, (key, value) in enumerate(entries):
            one = self.made[first.origin, first.sequence + number]
            assert (one.key, one.payload) == (key, value)
            self.acknowledged.append(one)

    def value(self) -> bytes:
        """Return a payload that no other operation has."""
        return f"v{next(self.numbers)}".encode() * 5

    def may_fail(self) -> bool:
        """Return True if all replicas have repaired the last fault."""
        ready = all(one.replicator.caught_up.is_set() for one in self.live)
        return ready and not self.parted and self.now - self.fault_at >= REPAIR_SECONDS

    async def crash(self) -> None:
        """End a node at once, with or without its disk, and start another one after a while."""
        node = self.random.choice(self.live)
        keeps = self.random.random() < 0.5
        self.fault_at = self.now
        node.end()
        del self.nodes[node.address]
        await asyncio.sleep(self.random.uniform(0, 3))
        same = self.random.random() < 0.5
        if not same:
            self.report()  # A replica that restarts in place stays a peer.
        await asyncio.sleep(self.random.uniform(0, 3))
        self.start(node.disk if keeps else None, node.address if same else "")
        self.fault_at = self.now

    async def part(self) -> None:
        """Part the network for a while."""
        every = [one.address for one in self.nodes.values()]
        self.parted = set(self.random.sample(every, self.random.randrange(1, len(every))))
        await asyncio.sleep(self.random.uniform(1, 15))
        self.parted = set()
        self.fault_at = self.now

    async def replace(self) -> None:
        """Start a replica, and then drain another one, as a rollout does."""
        fresh = self.start()
        while not fresh.replicator.caught_up.is_set():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
        leaver = self.random.choice([one for one in self.live if one is not fresh])
        leaver.drains = True
        self.report()
        await asyncio.sleep(3)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leaver.replicator.drain(), 30)
        leaver.end()
        self.nodes.pop(leaver.address, None)
        self.fault_at = self.now

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until nothing moves any more."""
        self.parted, self.loss, self.slow = set(), min(self.loss, 0.1), {}
        until = self.now + seconds
        while self.now < until:
            await asyncio.sleep(1)
            logs = [one.replicator.log for one in self.live]
            ready = all(one.replicator.caught_up.is_set() for one in self.live)
            if ready and not self.tasks and all(one.vector == logs[0].vector for one in logs):
                return

    def check(self) -> None:
        """Check what is promised."""
        for node in self.live:
            node.check()
            log = node.replicator.log
            assert node.replicator.caught_up.is_set(), f"{node.address} is not ready"
            assert log.stamps() == self.live[0].replicator.log.stamps(), "replicas differ"
            for key, stamp in log.stamps().items():
                made = self.by_rank[stamp.rank]
                assert (made.key, made.payload) == (key, node.store.values.get(key)), "a wrong value"
            for one in self.acknowledged:
                found = log.stamp(one.key)
                assert found is not None and found.rank >= one.stamp.rank, f"lost: {one.key!r}"


def random_job(source: random.Random, kind: type[Replicator] = Replicator) -> Job:
    """Return a job with random settings, without replicas."""
    settings = Settings(
        sync_seconds=source.choice([0.3, 1.0]),
        batch_bytes=source.choice([300, 1 << 16]),
        retained_bytes=source.choice([500, 3000, 1 << 20]),
        deferred_bytes=source.choice([1000, 1 << 20]),
        waiting_operations=source.choice([8, 1000]),
    )
    return Job(
        source,
        kind,
        settings,
        snapshots=source.random() < 0.7,
        loss=source.choice([0.0, 0.1, 0.3]),
        repetition=source.choice([0.0, 0.3]),
        log_errors=source.choice([0.0, 0.0, 0.05]),
    )


async def schedule(seed: int, kind: type[Replicator] = Replicator, seconds: float = 120.0) -> Job:
    """Run one schedule, check what is promised, and return the job."""
    return await play(random_job(random.Random(seed), kind), seconds)


async def play(job: Job, seconds: float) -> Job:
    """Let the replicas of a job run, check what is promised, and return the job."""
    for _ in range(job.random.choice([2, 2, 3, 4])):
        job.start()
    fault: asyncio.Task[None] | None = None
    try:
        while job.now < seconds:
            await asyncio.sleep(job.random.expovariate(4.0))
            for node in job.nodes.values():
                node.check()
            if job.random.random() < 0.7:
                job.spawn(job.write())
            if job.random.random() < 0.01:
                job.random.choice(job.live).persist()
            if job.random.random() < 0.02:
                job.slow = {job.random.choice(job.live).address: job.random.choice([1.0, 100.0])}
            if fault is not None and fault.done():
                fault.result()
                fault = None
            if fault is None and job.may_fail() and job.random.random() < 0.3:
                kinds = [job.crash, job.crash, job.part, job.replace]
                fault = asyncio.ensure_future(job.random.choice(kinds)())
        if fault is not None:
            await fault
        await job.settle()
        job.check()
    finally:
        for node in job.nodes.values():
            node.end()
        for task in job.tasks:
            task.cancel()
        await asyncio.sleep(0)
    return job


def failure(seed: int, kind: type[Replicator] = Replicator) -> str:
    """Return the broken promise of a schedule; empty if it keeps all."""
    try:
        run(schedule(seed, kind))
    except (AssertionError, ExceptionGroup) as error:
        return str(error) or repr(error)
    return ""


def main() -> None:
    """Run schedules for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first schedule")
    given = parser.parse_args()
    until, broken = time.monotonic() + given.seconds, 0
    acknowledged = refused = number = 0
    for seed in itertools.count(given.seed):
        if time.monotonic() >= until:
            break
        try:
            job = run(schedule(seed))
            acknowledged += len(job.acknowledged)
            refused += job.refused
        except (AssertionError, ExceptionGroup) as error:
            broken += 1
            print(f"seed {seed}: {error}", flush=True)
        number += 1
    print(f"{number} schedules, {acknowledged} operations acknowledged, {refused} refused, {broken} broken")
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
