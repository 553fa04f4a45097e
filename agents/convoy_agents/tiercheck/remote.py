"""The remote stores that the hub has announced, and the operations of this node's jobs in these stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from botocore.exceptions import BotoCoreError

from convoy_agents import metrics
from convoy_agents.csi.mounts import is_target
from convoy_agents.models.source import from_wire, pinned_generations
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.link import Encoders, Link
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.tiercheck.stores.adopt import adopt
from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.calls import Calls, ResponseTimer, TimedBlobs
from convoy_agents.tiercheck.stores.errors import Damaged, NotMounted, StoreError
from convoy_agents.tiercheck.stores.job_folders import JobFolder
from convoy_agents.tiercheck.stores.probe import probe
from convoy_agents.tiercheck.stores.s3 import S3, Bucket, Credentials
from convoy_agents.tiercheck.stores.store import CommitRules, Store
from convoy_agents.tiercheck.stores.upload import TransferLimits, download, upload
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.records import Branch, Inventory, Record
from convoy_controllers.checkpoint.retention import Keep

T = TypeVar("T")

MAX_STORES = 64
READ_SECONDS = 60.0
"""Timeout in seconds for reading or writing one chunk in this node's memory."""

log = structlog.get_logger()


class _KnownStore:
    """A store that the hub has announced."""

    def __init__(self, message: hub_pb2.Store, blobs: Blobs, link: Link) -> None:
        self.message = message
        self.blobs = blobs
        self.link = link
        self.metadata_calls = Calls(blobs.where)
        # Whole shards take long, so they have threads of their own. Uploads and downloads use separate
        # threads, so a restore does not wait for uploads.
        self.upload_calls = Calls(blobs.where)
        self.download_calls = Calls(blobs.where)

    def close(self) -> None:
        for calls in (self.metadata_calls, self.upload_calls, self.download_calls):
            calls.close()


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation in a store for one job."""

    known: _KnownStore = field(repr=False)
    job: JobFolder
    timer: ResponseTimer = field(default_factory=ResponseTimer)

    def store(self, job_uid: str = "") -> Store:
        """Return the part of the store that belongs to this job. `job_uid`: another job in the same
        namespace, to use its part instead.
        """
        return Store(
            TimedBlobs(self.known.blobs, self.timer),
            self.job.namespace,
            job_uid or self.job.uid,
            rules=CommitRules(conditional=self.known.message.conditional),
            packer=self.known.link,
        )

    async def run(self, do: Callable[[], T]) -> T:
        """Run a short operation in a thread: see `Calls.run`."""
        return await self.known.metadata_calls.run(self.timer, do)

    async def send(self, do: Callable[[threading.Event], T]) -> T:
        """Upload whole shards in a thread. `do` gets an event that is set when the caller is cancelled or
        `do` has ended.
        """
        return await self._move(self.known.upload_calls, do)

    async def fetch(self, do: Callable[[threading.Event], T]) -> T:
        """Download whole shards in a thread. `do` gets the same event as in `send`."""
        return await self._move(self.known.download_calls, do)

    async def _move(self, calls: Calls, do: Callable[[threading.Event], T]) -> T:
        stop = threading.Event()
        try:
            return await calls.run(self.timer, lambda: do(stop))
        finally:
            stop.set()


class Remotes:
    """The remote stores that jobs of this node use. `report`: sends the result of a probe to the hub."""

    def __init__(
        self,
        report: Callable[[hub_pb2.StoreReport], None],
        volumes: Path,
        encoders: Encoders,
        rate: float = 0.0,
    ) -> None:
        """`volumes`: the folder in which each PersistentVolumeClaim is mounted under its name. `rate`: rate
        limit of one upload in bytes per second; 0 for no limit.
        """
        self._report = report
        self._volumes = volumes
        self._encoders = encoders
        self._rate = rate
        self._known: dict[str, _KnownStore] = {}
        self._probing: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Running probes, by the store's name and the version of its settings."""

    def apply(self, message: hub_pb2.Store) -> None:
        """Apply a store's location and credentials from the hub. Probe the store if the hub requests it."""
        known = self._known.get(message.name)
        try:
            if known is not None and _location(known.message) == _location(message):
                if isinstance(known.blobs, S3) and _credentials(known.message) != _credentials(message):
                    known.blobs.renew(_credentials(message))
                known.message = message
            else:
                link = Link(self._encoders, partial(metrics.travelled, "store"))
                known = _KnownStore(message, self._connect(message), link)
        except (ValueError, BotoCoreError) as error:
            # The client cannot be created, for example because the host name has an underscore.
            log.warning("store rejected: its settings are invalid", store=message.name, why=str(error))
            self._drop(message.name)
            self._report(
                hub_pb2.StoreReport(name=message.name, version=message.version, message=str(error)[:1024])
            )
            return
        if self._known.get(message.name) is known:
            del self._known[message.name]
        self._drop(message.name)
        self._known[message.name] = known
        while len(self._known) > MAX_STORES:
            self._drop(next(iter(self._known)))
        log.info("store settings applied", store=message.name, version=message.version[:12])
        probe_key = (message.name, message.version)
        # On a file system that hangs, each probe would block one more thread. So start no second probe of the
        # same version.
        if message.probe and probe_key not in self._probing:
            task = self._probing[probe_key] = asyncio.create_task(self._probe(known))
            task.add_done_callback(lambda _: self._probing.pop(probe_key, None))

    def store_of(self, plan: Assignment) -> Store:
        """Return the part of the store that belongs to the job. Raises StoreError if the hub has not
        announced the store.
        """
        return self._call(plan).store()

    def can_commit(self, plan: Assignment) -> bool:
        """Return True if the hub has announced the job's store, and the store's probe found that it can
        commit safely.
        """
        use = plan.memory.store if plan.memory else None
        known = self._known.get(use.name) if use else None
        return known is not None and known.message.conditional

    async def inventory(self, plan: Assignment) -> Inventory:
        """Return the inventory of the job's part of the store. Raises StoreError if the store fails."""
        call = self._call(plan)
        return await call.run(call.store().inventory)

    async def branch(self, plan: Assignment, branch: Branch) -> None:
        """Write a branch to the job's part of the store. The branch names the generation from which an
        incarnation starts, or says that this is not decided yet. Raises StoreError if the store fails.
        """
        call = self._call(plan)
        part = call.store()
        await call.run(lambda: part.put_branch(branch))

    async def adopt(self, plan: Assignment) -> None:
        """Copy the checkpoint of another job, from which this job starts, into this job's part of the store.
        Do nothing if the job starts from no other job.

        Raises StoreError if the store fails, or Damaged if an object of the checkpoint is damaged.
        """
        use = plan.memory.store if plan.memory else None
        if use is None or not use.resume_uid:
            return
        call = self._call(plan)
        target, source = call.store(), call.store(use.resume_uid)
        done = await call.fetch(lambda stop: adopt(source, target, use.resume_step, stop, self._rate))
        log.info(
            "checkpoint of another job adopted",
            job=plan.job,
            source=use.resume_uid,
            sent=done.sent_bytes,
            **done.source._asdict(),
        )

    async def upload(self, plan: Assignment, job_memory: JobMemory, key: str) -> None:
        """Upload a shard from this node's memory. Raises StoreError if the store fails. Raises Damaged if the
        shard is missing or damaged in this node's memory.
        """
        call, loop = self._call(plan), asyncio.get_running_loop()
        part = call.store()
        manifest = await job_memory.inspect(lambda store: store.manifest(key))
        if manifest is None:
            raise Damaged(f"shard {key} is not on this node")

        def read(index: int) -> bytes:
            return asyncio.run_coroutine_threadsafe(job_memory.read(key, index), loop).result(READ_SECONDS)

        limits = TransferLimits(bytes_per_second=self._rate)
        done = await call.send(lambda stop: upload(part, manifest, read, stop=stop, limits=limits))
        log.info(
            "shard uploaded",
            job=plan.job,
            shard=manifest.shard,
            sent=done.sent_bytes,
            wire=done.wire_bytes,
            skipped=done.skipped_bytes,
            seconds=round(done.seconds, 2),
            **manifest.generation._asdict(),
        )

    async def fetch(self, plan: Assignment, job_memory: JobMemory, key: str, limit: int) -> None:
        """Download a shard into this node's memory. `limit`: maximum bytes of the job's checkpoints on this
        node; 0 if the job has no own limit. Raises StoreError, Damaged, BudgetExceeded or
        ShareExhausted.
        """
        call, loop = self._call(plan), asyncio.get_running_loop()
        part = call.store()
        manifest = await call.run(lambda: part.manifest(key))
        if manifest is None:
            raise Damaged(f"manifest {key} is missing in {part.where}")
        wanted = await job_memory.expect(manifest, OTHERS, limit)

        def write(index: int, data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(job_memory.put(key, index, data), loop).result(READ_SECONDS)

        await call.fetch(lambda stop: download(part, manifest, write, stop=stop, wanted=wanted))
        await job_memory.use(lambda store: store.admit(key))

    async def commit(self, plan: Assignment, record: Record) -> bool:
        """Write the record of a generation to the store. Return True if the generation is committed. Raises
        StoreError if the store fails.

        Write nothing and return False if the store shows that a later incarnation has started. This agent may
        have been cut off from the job's other nodes when that incarnation started. The later incarnation then
        does not know this generation, and must not find it later.
        """
        call = self._call(plan)
        part = call.store()

        def write() -> bool:
            begun = max(part.inventory().branches, default=0)
            return begun <= plan.incarnation and part.commit(record)

        return await call.run(write)

    async def collect_garbage(self, plan: Assignment) -> None:
        """Delete the objects of the job that its assignment's `keep_last` and `keep_every_steps` do not
        require, except the generations that ServingJobs load. Raises StoreError if the store fails.
        """
        call = self._call(plan)
        part = call.store()
        use = plan.memory.store if plan.memory else None
        keep = Keep(use.keep_last, use.keep_every_steps) if use else Keep()
        pinned = [
            from_wire(one)
            for one in call.known.message.pinned
            if (one.namespace, one.job_uid) == (call.job.namespace, call.job.uid)
        ]
        gone = await call.run(lambda: part.collect_garbage(keep, pinned_generations(part, pinned)))
        log.info(
            "garbage collected in the store",
            job=plan.job,
            records=len(gone.records),
            manifests=len(gone.manifests),
            chunks=len(gone.chunks),
        )

    async def read(self, name: str, job: JobFolder, do: Callable[[Store, threading.Event], T]) -> T:
        """Return the result of `do`, which reads a job's part of the store `name`. `do` runs in a thread and
        gets an event that is set when the caller is cancelled. Raises StoreError if the store fails.
        """
        call = self._open(name, job)
        part = call.store()
        return await call.fetch(lambda stop: do(part, stop))

    async def put_trace(self, plan: Assignment, store: str, name: str, data: bytes) -> None:
        """Write a trace of a job to its part of the store `store`, whole or not at all. Raises StoreError if
        the store fails.
        """
        call = self._open(store, JobFolder(plan.job.partition("/")[0], plan.job_uid))
        part = call.store()
        await call.send(lambda _: part.put_trace(name, data))

    async def close(self) -> None:
        """Cancel probes and close all stores, without waiting for running calls."""
        for task in self._probing.values():
            task.cancel()
        for name in list(self._known):
            self._drop(name)

    def _call(self, plan: Assignment) -> _Call:
        use = plan.memory.store if plan.memory else None
        return self._open(use.name if use else "", JobFolder(plan.job.partition("/")[0], plan.job_uid))

    def _open(self, name: str, job: JobFolder) -> _Call:
        known = self._known.get(name)
        if known is None:
            raise StoreError(f"store {name!r}: the operator has not sent its settings yet", retriable=True)
        return _Call(known, job)

    def _drop(self, name: str) -> None:
        if (known := self._known.pop(name, None)) is not None:
            known.close()

    async def _probe(self, known: _KnownStore) -> None:
        message = known.message
        report = hub_pb2.StoreReport(name=message.name, version=message.version)
        try:
            timer = ResponseTimer()
            found = await known.metadata_calls.run(timer, lambda: probe(TimedBlobs(known.blobs, timer)))
            report.reached, report.message = True, found.summary
            report.conditional, report.checksums = found.conditional, found.checksums
        except (StoreError, OSError, ValueError) as error:
            report.message, report.unmounted = str(error)[:1024], isinstance(error, NotMounted)
        self._report(report)

    def _connect(self, message: hub_pb2.Store) -> Blobs:
        if message.HasField("volume"):
            claim = message.volume.claim
            return Volume(self._volumes / claim, message.volume.path, claim=claim, mounted=is_target)
        bucket = Bucket(
            message.bucket,
            endpoint_url=message.endpoint,
            region=message.region or "us-east-1",
            prefix=message.prefix,
            addressing="path" if message.path_style else "auto",
        )
        return S3(bucket, _credentials(message))


def _credentials(message: hub_pb2.Store) -> Credentials:
    return Credentials(message.access_key, message.secret_key, message.session_token)


def _location(message: hub_pb2.Store) -> tuple[object, ...]:
    bucket = message.endpoint, message.region, message.bucket, message.prefix, message.path_style
    return *bucket, message.volume.claim, message.volume.path
