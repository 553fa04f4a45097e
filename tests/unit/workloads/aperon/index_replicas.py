"""Replicas of an index in virtual time: the random schedules of replication, with indexes on a disk."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.workloads.replication.simulation import Disk, Job, MemoryTransport, Node, play, random_job
from tests.unit.workloads.replication.virtual_time import run

from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.knowledge import Knowledge
from convoy_workloads.engines.aperon.manifest import manifest_files
from convoy_workloads.engines.aperon.opening import Opened
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.replica_peers import Exchanged, IndexReplicator, PacedTransport
from convoy_workloads.engines.aperon.replica_records import key_of, payload_of
from convoy_workloads.engines.aperon.replica_store import INCOMPLETE, Index, ReplicaStore
from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.engines.aperon.settings import IndexSettings, Options
from convoy_workloads.engines.aperon.shard import Shard
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.operation import Operation

SETTINGS = IndexSettings(2, fields={"n": "integer"}, grains=1, dims=4)
OPTIONS = Options(fsync="never", flush_rows=8, most_segments=2, kernel="twin")
SEEDS = [f"s{at}" for at in range(4)]
"""Ids of the records that the snapshot in spec.model has. Later there is another snapshot, of which no
replica must take anything.
"""
FIRST_SECONDS = 10.0
"""Time until which the job has its first snapshot."""


class Writer:
    """The writer's thread, as a part of the loop. Each task takes a while."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tasks: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.alive = True
        self.seconds = 0.02
        """Longest time until a task is done."""

    def submit(self, function: Callable[[], Any], *, bounded: bool = True) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self._tasks.append((function, done))
        asyncio.get_running_loop().call_later(self._job.random.uniform(0, self.seconds), self.run, 1)
        return done

    def run(self, count: int = -1) -> None:
        """Do tasks: all of them, if `count` is negative."""
        while self._tasks and count and self.alive:
            function, done = self._tasks.pop(0)
            found = function()
            if not done.done():
                done.set_result(found)
            count -= 1


class IndexStore(ReplicaStore):
    """A store that tells the job what it logs."""

    def __init__(self, job: Job, folder: Path, open_index: Callable[[], Opened]) -> None:
        super().__init__(folder, open_index, durable=False)
        self._job = job
        self._read: tuple[int, dict[bytes, bytes]] = (-1, {})

    async def log(self, operations: Sequence[Operation]) -> None:
        self._job.record(operations)
        await super().log(operations)

    def snapshot(self) -> AsyncIterator[bytes] | None:
        return super().snapshot() if self._job.snapshots else None

    @property
    def values(self) -> dict[bytes, bytes]:
        """The records of the index."""
        index = self._open.ensemble.own.index
        if self._read[0] != index.sequence:
            found = [one for one in index.fetch(index.ids()) if one is not None]
            values = {key_of(one.id): payload_of(one.vector, one.record) for one in found}
            self._read = index.sequence, values
        return self._read[1]


class IndexDisk(Disk):
    """The disk of a replica: a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


class IndexNode(Node):
    """A process of a replica with an index."""

    job: IndexJob
    disk: IndexDisk

    def __init__(self, job: IndexJob, address: str, disk: IndexDisk) -> None:
        self.job, self.address, self.disk = job, address, disk
        self.writer = Writer(job)
        self.index: Index | None = None
        self.folder = disk.folder / "index"
        self.store: Any = IndexStore(job, self.folder, self._opened)
        log = OperationLog(job.settings.retained_bytes)
        if (self.folder / INCOMPLETE).exists():
            shutil.rmtree(self.folder)
        if manifest_files(self.folder):
            index = self._index(self._opened().index)
            log = job.replication.recover(index, self.folder)
            self.store.attach(index)
            self._agree(log)
        transport = PacedTransport(MemoryTransport(self), self.store, Exchanged())
        skew = job.random.uniform(-10_000, 10_000)
        self.replicator = IndexReplicator(
            self.store, transport, job.settings, recovered=log, totals=Exchanged()
        )
        self.replicator.random = job.random
        now = asyncio.get_running_loop().time
        self.replicator._clock._now = lambda: int(1e12 + skew + now() * 1000)
        self.drains, self.alive = False, True
        self.task = asyncio.ensure_future(self._run())

    def _agree(self, log: OperationLog) -> None:
        """Check that what a replica knows after a restart is in its index, and the other way round."""
        values, stamps = self.store.values, log.stamps()
        for key, one in stamps.items():
            assert self.job.by_rank[one.rank].payload == values.get(key), f"{key!r} is not as it is known"
        assert values.keys() <= stamps.keys() | {key_of(one) for one in SEEDS}, "a record is not known"

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.replicator.run())
            group.create_task(self._start())

    async def _start(self) -> None:
        """Open an index once the replica has caught up, as `open_replica` does."""
        while not self.replicator.caught_up.is_set():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
        if self.index is None:
            await asyncio.sleep(self.job.random.uniform(0, 1))
            opened, seeded = self.store.restored, False
            if opened is None:
                shutil.rmtree(self.folder, ignore_errors=True)
                seeds = self.job.seeds
                rows = (seeds, np.ones((len(seeds), 2), np.float32), None)
                VectorIndex.create(self.folder, SETTINGS, rows=rows, options=OPTIONS).close()
                opened, seeded = self._opened(), True
            self.job.replication.adopt(self.store, self._index(opened.index), seeded=seeded)
            self._persist()

    def _opened(self) -> Opened:
        return Opened(VectorIndex(self.folder, options=OPTIONS), self.folder, "")

    def _index(self, index: VectorIndex) -> Index:
        knowledge = Knowledge(self.folder, Storage(durable=False))
        self.index = Index(Ensemble(Shard(index, 0, 1)), self.writer, knowledge)  # type: ignore[arg-type]
        index.before_publish = self._persist
        return self.index

    def _persist(self) -> None:
        block = self.store.block()
        self.writer.run()
        self.store.write(block)

    def persist(self) -> None:
        if self.store.attached:
            assert self.index is not None
            index = self.index.ensemble.own.index
            self.job.random.choice([index.flush, index.flush, index.compact])()

    def end(self) -> None:
        if self.job.random.random() < self.job.flushes:
            self.persist()  # The process may end just after that.
        super().end()
        self.writer.alive = False
        if self.index is not None:
            self.index.ensemble.own.index.abandon()

    def check(self) -> None:
        super().check()
        if self.job.random.random() < 0.05:
            self.persist()


class IndexJob(Job):
    """A job whose replicas have indexes in folders of their own."""

    folder: Path
    disks: Any
    node: type[IndexNode]
    flushes = 0.5
    """Share of the ends of processes that come just after a flush."""
    replication: Replication

    @property
    def seeds(self) -> list[str]:
        """The ids of the snapshot in spec.model. Without snapshots of peers, it must stay."""
        return SEEDS if self.now < FIRST_SECONDS or not self.snapshots else ["late"]

    def make_node(self, address: str, disk: Any) -> Node:
        if disk is None:
            disk = IndexDisk(self.folder / f"disk-{next(self.disks)}")
            disk.folder.mkdir()
        return self.node(self, address, disk)

    def value(self) -> bytes:
        number = next(self.numbers)
        return payload_of(np.array([number, -number], np.float32), {"n": number})

    def opened(self) -> bool:
        """Return True if all replicas have an index."""
        nodes: Any = self.live
        return all(one.store.attached for one in nodes)

    async def settle(self, seconds: float = 60.0) -> None:
        await super().settle(seconds)
        while not self.opened():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)

    def check(self) -> None:
        for node in self.live:
            node.writer.run()  # type: ignore[attr-defined]
        super().check()
        for node in self.live:
            known = node.replicator.log.stamps()
            values = node.store.values
            alive = {key for key, one in known.items() if self.by_rank[one.rank].payload is not None}
            seeds = {key_of(one) for one in SEEDS} - known.keys()
            assert values.keys() == alive | seeds, "a deleted record came back, or one is lost"


async def _inline(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0.001)
    return function(*arguments)


def random_index_job(folder: Path, seed: int, kind: type[IndexNode] = IndexNode) -> IndexJob:
    """Return a job with random settings, without replicas."""
    source = random.Random(seed)
    made = random_job(source)
    job = IndexJob(source, made.kind, made.settings, snapshots=made.snapshots, loss=made.loss)
    job.folder, job.disks, job.node = folder, itertools.count(), kind
    job.replication = Replication(Params(), {})
    job.replication.settings = made.settings
    return job


def in_virtual_time(what: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine. Threads do not exist in virtual time."""
    threads, asyncio.to_thread = asyncio.to_thread, _inline  # type: ignore[assignment]
    try:
        run(what)
    finally:
        asyncio.to_thread = threads


def failure(folder: Path, seed: int, seconds: float, kind: type[IndexNode] = IndexNode) -> str:
    """Return the broken promise of a schedule; empty if it keeps all."""
    try:
        in_virtual_time(play(random_index_job(folder, seed, kind), seconds))
    except (AssertionError, ExceptionGroup) as error:
        return str(error) or repr(error)
    return ""
