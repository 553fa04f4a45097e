"""The index as the store of a replicator: its log, its records, and its whole state.

The event loop calls the methods of the store, and the writer's thread does the work, in the same order. An
operation of this replica is applied when it is logged. Before that moment the replicator has not merged it,
so an older operation of a peer on the same record may come after it: then it is applied once more.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.engines.aperon import folder_stream, replica_records
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput, NoSpace
from convoy_workloads.engines.aperon.knowledge import Knowledge
from convoy_workloads.engines.aperon.opening import Opened
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon.writer import Writer
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.operation import Operation, Stamp, Vector

PENDING_BYTES = 64 << 20
"""Bytes of waiting operations from which on the replica accepts none from peers until the writer has caught
up.
"""
INCOMPLETE = "incomplete"
"""File in the folder of an index that has not arrived completely. The next start removes the folder."""
PERSIST_SECONDS = 60.0
"""Longest time until the writer has done what waits."""
NO_SPACE_SECONDS = 60.0
"""Longest time for which operations of peers wait for space on the disk. Then the replica ends."""
_STATE = ".state-"
"""Part of the name of each folder that holds a copy for a peer."""
Block = tuple[Vector, dict[bytes, Stamp], bool]
"""A version vector, stamps, and whether these are all stamps."""


@dataclass(frozen=True, slots=True)
class Index:
    """The open index of a replica."""

    ensemble: Ensemble
    writer: Writer
    knowledge: Knowledge

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of the index."""
        return self.ensemble.own.index.settings

    @property
    def grouped(self) -> bool:
        """Return True if the replica has several pods. Their logs are apart, so the stamps have a log of
        their own: the file of knowledge.
        """
        return self.ensemble.world > 1


class _Pending:
    """Operations that the writer applies together."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._lock = threading.Lock()
        self._operations: list[Operation] | None = list(operations)
        self.size = sum(one.size for one in operations)

    def add(self, operations: Sequence[Operation]) -> bool:
        """Add operations. Return False if the writer has begun."""
        with self._lock:
            if self._operations is None:
                return False
            self._operations += operations
            self.size += sum(one.size for one in operations)
            return True

    def drain(self) -> list[Operation]:
        """Return the operations. From now on, none is added."""
        with self._lock:
            found, self._operations = self._operations or [], None
            return found


class ReplicaStore:
    """The store of one replica. Until it has an index, it holds the operations to apply."""

    def __init__(self, folder: Path, open_index: Callable[[], Opened], *, durable: bool) -> None:
        """`folder`: that of the index. `open_index` opens the index of a peer that has arrived there."""
        self.known = OperationLog()
        """The log of the replicator."""
        self.restored: Opened | None = None
        """The index of a peer, once it has arrived."""
        self.applied = 0
        """Number of operations of peers that were applied."""
        self._folder, self._open_index, self._durable = folder, open_index, durable
        self._index: Index | None = None
        self._held: list[Operation] = []
        self._held_bytes = 0
        self._pending: _Pending | None = None
        self._waiting: dict[asyncio.Future[None], _Pending] = {}
        self._whole = True
        """True if the next block must have all stamps."""
        self._changed: dict[bytes, Stamp] = {}
        """Stamps that are in no block."""
        self._logging: Sequence[Operation] = ()
        self._overtaken: set[bytes] = set()
        """Keys of peers' operations that have come since those of `_logging`."""
        self._logged: tuple[bytes, frozenset[bytes]] = (b"", frozenset())
        """Origin and keys of operations that need not be applied again after they were logged."""
        self._numbers = itertools.count()
        for one in folder.parent.glob(f"{folder.name}{_STATE}*"):
            shutil.rmtree(one, ignore_errors=True)

    def attach(self, index: Index) -> None:
        """Use an index. What was held is applied to it."""
        self._index = index
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._queue(index, held)

    @property
    def attached(self) -> bool:
        """Return True if there is an index."""
        return self._index is not None

    @property
    def full(self) -> bool:
        """Return True if the writer is behind, so that no further operations of peers are accepted."""
        return sum(one.size for one in self._waiting.values()) >= PENDING_BYTES

    @property
    def holds_much(self) -> bool:
        """Return True if at least PENDING_BYTES of operations wait for the index."""
        return self._held_bytes >= PENDING_BYTES

    async def room(self) -> None:
        """Wait until the writer is not behind."""
        while self.full:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)

    def check(self, operations: Sequence[Operation]) -> None:
        """Raise InvalidInput if operations of a peer do not fit the index."""
        if operations and self._index is not None:
            replica_records.check(operations, self._index.settings)

    # The methods of `replication.transport.Store`.

    async def log(self, operations: Sequence[Operation]) -> None:
        """Log operations of this replica, and apply them."""
        index = self._open
        self._pending = None  # What comes from now on is applied after these operations.
        self._logging, self._overtaken = operations, set()
        block = self.block() if index.grouped else None
        try:
            await index.writer.submit(lambda: _write(index, operations, block), bounded=False)
        except BaseException:
            self._whole = True  # Perhaps the block was not written.
            raise
        finally:
            self._logging = ()
        self._note(operations)
        self._logged = operations[0].stamp.origin, frozenset(one.key for one in operations) - self._overtaken

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply operations."""
        origin, keys = self._logged
        chosen = [one for one in operations if one.stamp.origin != origin or one.key not in keys]
        if not chosen:
            return
        self._note(chosen)
        self._overtaken.update(one.key for one in chosen)
        self.applied += len(chosen)
        if self._index is None:
            self._held += chosen
            self._held_bytes += sum(one.size for one in chosen)
        else:
            self._queue(self._index, chosen)

    async def payloads(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the records of keys."""
        index = self._open
        found: Sequence[bytes | None] = await index.writer.submit(
            lambda: _payloads(index, keys), bounded=False
        )
        return found

    def snapshot(self) -> AsyncIterator[bytes] | None:
        """Return the files of the index. A group has none: its peers get the records one by one.

        An operation that is being logged may be in them too. The peer gets it once more.
        """
        index = self._open
        if index.grouped:
            return None
        folder = self._folder.with_name(f"{self._folder.name}{_STATE}{next(self._numbers)}")
        made = index.writer.submit(lambda: index.ensemble.own.index.fork(folder), bounded=False)

        async def parts() -> AsyncIterator[bytes]:
            await made
            async for part in folder_stream.sent(folder):
                yield part

        found = parts()
        # A peer may leave before it has read anything.
        weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
        return found

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        """Write the files of a peer's index, and open it."""
        await asyncio.to_thread(self._prepare)
        try:
            await folder_stream.received(self._folder, parts, durable=self._durable)
            self.restored = await asyncio.to_thread(self._open_index)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _prepare(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        (self._folder / INCOMPLETE).touch()

    # The knowledge of the replica.

    def persist(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what is known to the file, after the operations are on the disk. A thread other than those of
        the event loop and of the writer calls this.
        """
        if not self._open.grouped:
            try:
                self.write(asyncio.run_coroutine_threadsafe(self._settled(), loop).result(PERSIST_SECONDS))
            except BaseException:
                self._whole = True
                raise

    async def _settled(self) -> Block:
        index, block = self._open, self.block()
        # All operations of the block are applied before this task of the writer.
        await index.writer.submit(index.ensemble.sync if self._durable else _nothing, bounded=False)
        return block

    def block(self) -> Block:
        """Return what is in no block yet, with the operations that are being logged."""
        vector = self.known.vector
        if self._logging:
            last = self._logging[-1].stamp
            vector[last.origin] = last.sequence
            self._note(self._logging)
        whole = self._whole or self._open.knowledge.grown
        changed, self._changed, self._whole = self._changed, {}, False
        if not whole:
            return vector, changed, False
        stamps = self.known.stamps()
        for key, one in changed.items():
            _put(stamps, key, one)
        return vector, stamps, True

    def write(self, block: Block) -> None:
        """Write a block, whose operations are in the log of the index, to the file."""
        _write_block(self._open.knowledge, block)
        (self._folder / INCOMPLETE).unlink(missing_ok=True)

    def _note(self, operations: Sequence[Operation]) -> None:
        for one in operations:
            _put(self._changed, one.key, one.stamp)

    def _queue(self, index: Index, operations: Sequence[Operation]) -> None:
        """Let the writer apply operations."""
        if self._pending is not None and self._pending.add(operations):
            return
        pending = self._pending = _Pending(operations)
        done = index.writer.submit(lambda: _apply(index, pending.drain()), bounded=False)
        self._waiting[done] = pending
        done.add_done_callback(self._finished)

    def _finished(self, done: asyncio.Future[None]) -> None:
        del self._waiting[done]
        if not done.cancelled():
            done.exception()  # The engine ends with the writer's error.

    @property
    def _open(self) -> Index:
        if self._index is None:
            raise RuntimeError("the index is not open yet")
        return self._index


def _put(stamps: dict[bytes, Stamp], key: bytes, stamp: Stamp) -> None:
    found = stamps.get(key)
    if found is None or found.rank < stamp.rank:
        stamps[key] = stamp


# The following functions run in the writer's thread.


def _write(index: Index, operations: Sequence[Operation], block: Block | None) -> None:
    """Log operations of this replica, and apply them. A block comes first: after a crash in between, the
    replica may lack only operations that nobody else has.
    """
    if block is not None:
        index.ensemble.sync()
        _write_block(index.knowledge, block)
    index.ensemble.write(replica_records.batch(operations, index.settings))


def _apply(index: Index, operations: Sequence[Operation]) -> None:
    """Apply operations of peers. They are known already, so they wait while the disk has no space."""
    until = time.monotonic() + NO_SPACE_SECONDS
    while True:
        try:
            index.ensemble.write(replica_records.batch(operations, index.settings))
            return
        except InvalidInput as error:
            if not isinstance(error, NoSpace) or time.monotonic() > until:
                raise RuntimeError(f"operations of a peer are not applied: {error}") from error
            time.sleep(random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _payloads(index: Index, keys: Sequence[bytes]) -> list[bytes | None]:
    ids = [replica_records.id_of(key, index.settings.id_type) for key in keys]
    found = index.ensemble.fetch(ids)
    return [None if one is None else replica_records.payload_of(one.vector, one.record) for one in found]


def _write_block(knowledge: Knowledge, block: Block) -> None:
    vector, stamps, whole = block
    (knowledge.replace if whole else knowledge.append)(vector, stamps)


def _nothing() -> None:
    pass
