"""The replicator of one replica: it appends operations, exchanges them with the peers, and catches up."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.replication import catching_up, clock
from convoy_workloads.serving.replication.contacts import Contacts
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.messages import Busy, Confirm, Message, Pull, Push, Sender, Supply
from convoy_workloads.serving.replication.operation import ORIGIN_BYTES, Operation, Stamp, Vector, check
from convoy_workloads.serving.replication.peer import Peer
from convoy_workloads.serving.replication.settings import (
    LogFailed,
    NotAppended,
    NotReady,
    NotReplicated,
    Overloaded,
    Settings,
)
from convoy_workloads.serving.replication.transport import Store, Transport

Entry = tuple[bytes, bytes | None]
"""Key and payload of an operation. The payload is None to delete the key."""


@dataclass(slots=True)
class _Append:
    """Operations that wait to be written, or to be acknowledged."""

    entries: Sequence[Entry]
    size: int
    done: asyncio.Future[None]
    origin: bytes = b""
    last: int = 0
    """Sequence of the last operation; 0 before they are written."""


class Replicator:
    """The replicator of one replica. All methods are called in one event loop."""

    def __init__(
        self,
        store: Store,
        transport: Transport,
        settings: Settings | None = None,
        *,
        recovered: OperationLog | None = None,
        now: Callable[[], int] = clock.milliseconds,
        source: random.Random | None = None,
    ) -> None:
        """`recovered`: the operations in the durable log of this replica, which the engine has applied. `now`
        returns the time of day in milliseconds. `source` gives ids and spreads retries.
        """
        self.settings = settings or Settings()
        self.transport = transport
        self.random = source or random.Random()  # noqa: S311 - no secrets
        self.log = recovered if recovered is not None else OperationLog(self.settings.retained_bytes)
        self.process = self.random.randbytes(ORIGIN_BYTES)
        self.caught_up = threading.Event()
        """Set when the replica may serve. Any thread may wait for it."""
        self.counts_as_copy = False
        """True if this replica counts as a copy for its peers."""
        self.contacts = Contacts(self.process)
        self.store = store
        self._clock = clock.HybridClock(now)
        self._origin = self.random.randbytes(ORIGIN_BYTES)
        self._origins = [self._origin]
        self._drains = False
        self._queue: deque[_Append] = deque()
        self._queued = asyncio.Event()
        self._waiting: deque[_Append] = deque()
        self._counts = [0, 0]
        """Number and size of the operations that are not acknowledged yet."""
        self._addresses: tuple[str, ...] | None = None
        self._peers: dict[str, tuple[Peer, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()
        """Set when the contacts or the peers have changed."""
        self._join = catching_up.Join(self, fresh=not self.log.vector)

    @property
    def sender(self) -> Sender:
        """Return this process as the sender of a message."""
        return Sender(self.process, self._drains, not self.counts_as_copy)

    @property
    def unacknowledged(self) -> int:
        """Return the number of operations that are not acknowledged yet."""
        return self._counts[0]

    @property
    def peers(self) -> list[Peer]:
        """Return the peers with which this replica exchanges operations."""
        return [peer for peer, _ in self._peers.values()]

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        """Set the addresses of the peers. They replace the previous addresses."""
        self._addresses = tuple(one for one in dict.fromkeys(others) if one != own)
        if self._group is not None:
            self._connect()

    async def run(self) -> None:
        """Exchange operations until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._write())
            self._group.create_task(self._tick())
            self._group.create_task(self._join.run())
            if self._addresses is not None:
                self._connect()

    async def append(self, entries: Sequence[Entry]) -> None:
        """Set or delete keys. When this call returns, the operations are in the log of this replica and in
        the memory of enough peers.

        Raises NotAppended, and ValueError for a wrong key or payload.
        """
        for key, payload in entries:
            check(key, payload)
        if not self.caught_up.is_set():
            raise NotReady("this replica has not caught up with its peers yet: send the request again")
        size = sum(len(key) + len(payload or b"") for key, payload in entries)
        count, total = self._counts[0] + len(entries), self._counts[1] + size
        if count > self.settings.waiting_operations or total > self.settings.waiting_bytes:
            raise Overloaded(
                f"{self._counts[0]} operations wait for their copies: send the request again later"
            )
        if not entries:
            return
        one = _Append(entries, size, asyncio.get_running_loop().create_future())
        self._counts = [count, total]
        self._queue.append(one)
        self._queued.set()
        try:
            async with asyncio.timeout(self.settings.ack_seconds):
                await asyncio.shield(one.done)
        except TimeoutError:
            raise NotReplicated(self._why_late(one)) from None

    async def drain(self) -> None:
        """Wait until the peers have everything that this replica has. From now on its copies do not count for
        other replicas.
        """
        self._drains = True
        while (needed := self.required()) and self.contacts.covering(self.log.vector) < needed:
            self._wake()
            with contextlib.suppress(TimeoutError):  # Contacts expire without a message.
                async with asyncio.timeout(self.settings.sync_seconds):
                    await self.changed()

    def required(self) -> int:
        """Return the number of peers that must confirm an operation.

        By default, a peer that has not caught up does not count: if all others ended, it would have lost more
        than this operation. A peer that drains does not count either.
        """
        if self.settings.copies is not None:
            return self.settings.copies
        since = asyncio.get_running_loop().time() - self.settings.contact_seconds
        known = self.contacts
        reported = sum(not known.joins(one.process) and not known.drains(one.process) for one in self.peers)
        return min(1, max(reported, self.contacts.recent(since)))

    # Requests of peers.

    def on_push(self, message: Push) -> Confirm | Busy:
        """Respond to a push."""
        if not self._join.accepts():
            return Busy()
        self.merge(message.operations)
        # The sender has what it sends.
        sent = {one.stamp.origin: one.stamp.sequence for one in message.operations}
        self.record(message.sender, sent)
        known = {one: self.log.known(one) for one in sent} if sent else self.log.vector
        return Confirm(self.sender, known)

    def on_pull(self, message: Pull) -> Supply:
        """Respond to a pull."""
        self.record(message.sender, message.vector)
        found = self.log.missing_for(message.vector, self.settings.batch_bytes)
        return Supply(self.sender, self.log.vector, found.operations, found.trimmed)

    def on_state(self, message: Pull) -> AsyncIterator[Message]:
        """Respond to the request for a state."""
        self.record(message.sender, message.vector)
        return self._join.supply(message)

    # The exchange with a peer (`peer.Core`).

    def next_push(self, peer: Peer) -> Push | None:
        """Return the next operations for a peer; None if it lacks none that can be pushed."""
        if not peer.process:
            return Push(self.sender)
        if peer.process == self.process:
            return None
        known = self.contacts.vector(peer.process)
        for origin in self._origins:
            found = self.log.after(origin, known.get(origin, 0), self.settings.batch_bytes)
            if found.operations:
                return Push(self.sender, found.operations)
        return None

    def confirmed(self, peer: Peer, message: Confirm) -> None:
        """Record the response to a push."""
        self._identify(peer, message.sender)
        self.record(message.sender, message.vector)

    def next_pull(self) -> Pull:
        """Return a request for the operations that this replica lacks."""
        return Pull(self.sender, self.log.vector)

    def supplied(self, peer: Peer, message: Supply) -> None:
        """Add the operations of the response to a pull."""
        self._identify(peer, message.sender)
        if self._join.accepts():
            self.merge(message.operations)
        self.record(message.sender, message.vector)

    def covers(self, vector: Vector) -> bool:
        """Return True if this replica has all operations of a version vector."""
        return self.log.covers(vector)

    async def fetch_state(self, peer: Peer, target: Vector) -> None:
        """Take over the state of a peer, unless this replica has all operations of the version vector."""
        await self._join.fetch(peer, target)

    def synced(self) -> None:
        """Record that a peer has become `synced` or `settled`."""
        self._changed.set()

    # Parts that catching up uses too.

    def merge(self, operations: Iterable[Operation]) -> None:
        """Add operations of other replicas."""
        self.apply(self.log.merge(one for one in operations if one.stamp.origin != self._origin))

    def apply(self, won: Sequence[Operation]) -> None:
        """Apply operations that have won, or defer them while a state is read."""
        if won and not self._join.defer(won):
            self.store.apply(won)

    def record(self, sender: Sender, vector: Vector) -> None:
        """Record the operations that another replica has, and acknowledge what it confirms."""
        self.contacts.record(sender, vector, asyncio.get_running_loop().time())
        self._acknowledge()
        self._changed.set()
        for peer in self.peers:
            if peer.process == sender.process:
                peer.wake()

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """Return the addresses of the peers; None if they were not reported yet."""
        return self._addresses

    async def changed(self) -> None:
        """Wait until the contacts or the peers change."""
        self._changed.clear()
        await self._changed.wait()

    def _identify(self, peer: Peer, sender: Sender) -> None:
        """Record the process of a peer."""
        if peer.process and peer.process != sender.process:
            self.contacts.remove(peer.process)
        peer.process = sender.process
        self.contacts.restore(sender.process)

    def _connect(self) -> None:
        """Start and end the exchange with peers, as their addresses demand."""
        assert self._group is not None  # noqa: S101 - callers check it
        wanted = self._addresses or ()
        for address in [one for one in self._peers if one not in wanted]:
            peer, task = self._peers.pop(address)
            task.cancel()
            if peer.process:
                self.contacts.remove(peer.process)
        for address in wanted:
            if address not in self._peers:
                peer = Peer(address, self)
                self._peers[address] = (peer, self._group.create_task(peer.run()))
        self._acknowledge()
        self._changed.set()

    def _wake(self) -> None:
        for peer in self.peers:
            peer.wake()

    async def _write(self) -> None:
        """Write queued operations to the durable log, as many as are there at a time."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                await self._write_batch(self._next_batch())

    def _next_batch(self) -> list[_Append]:
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and size + self._queue[0].size <= self.settings.batch_bytes:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch

    async def _write_batch(self, batch: list[_Append]) -> None:
        sequence, operations = self.log.known(self._origin), []
        for one in batch:
            self._clock.observe(self.log.clock)
            for key, payload in one.entries:
                sequence += 1
                operations.append(Operation(Stamp(self._clock.next(), self._origin, sequence), key, payload))
            one.origin, one.last = self._origin, sequence
        try:
            await self.store.log(operations)
        except Exception as error:  # Any error of the engine's log; the caller gets it.
            # The numbers may be in the log, with these operations. So they must not be used again. An origin
            # without operations that peers may lack is replaced, as a full disk may fail at each write.
            if not self.log.known(self._origin):
                self._origins.remove(self._origin)
            self._origin = self.random.randbytes(ORIGIN_BYTES)
            self._origins.append(self._origin)
            log_line(f"operations not logged: {type(error).__name__}: {error}")
            for one in batch:
                failed = LogFailed(f"the log of this replica has failed: {error}")
                failed.__cause__ = error
                self._finish(one, failed)
            return
        self.apply(self.log.merge(operations))
        self._waiting.extend(batch)
        self._wake()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the operations that enough peers have confirmed."""
        needed = self.required()
        sequences: dict[bytes, int] = {}
        while self._waiting:
            one = self._waiting[0]
            if needed and one.origin not in sequences:
                sequences[one.origin] = self.contacts.confirmed(one.origin, needed)
            if needed and sequences[one.origin] < one.last:
                return
            self._finish(self._waiting.popleft())

    def _finish(self, one: _Append, error: NotAppended | None = None) -> None:
        self._counts = [self._counts[0] - len(one.entries), self._counts[1] - one.size]
        if one.done.done():
            return
        if error is None:
            one.done.set_result(None)
        else:
            one.done.set_exception(error)
            one.done.exception()  # The caller may have stopped to wait.

    async def _tick(self) -> None:
        """Acknowledge and trim when only time has passed."""
        while True:
            await asyncio.sleep(self.settings.sync_seconds)
            self._acknowledge()
            peers = [peer.process for peer in self.peers]
            if peers and all(peers):
                self.log.trim(self.contacts.least(peers, self.log.vector))

    def _why_late(self, one: _Append) -> str:
        seconds = self.settings.ack_seconds
        if not one.last:
            return f"the log of this replica did not accept the operations within {seconds:g} s"
        others = len(self._addresses or ())
        return (
            f"fewer than {self.required()} of {others} other replicas confirmed the operations "
            f"within {seconds:g} s: send the request again"
        )
