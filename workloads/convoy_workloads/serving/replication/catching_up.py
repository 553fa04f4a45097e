"""Catching up: a replica takes over the state of its peers before it serves, and supplies its own to others.

A replica without any operation may take over the whole state of the engine at a peer. Operations that arrive
meanwhile are known at once, so they count as copies, but are applied when the state is there. A replica that
has operations gets only the winners of the keys that it lacks, which are merged: it may have what nobody else
has.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.replication.messages import (
    Busy,
    Message,
    Pull,
    StateBegin,
    StateChunk,
    StateEnd,
    StateStamps,
    StateWinners,
)
from convoy_workloads.serving.replication.operation import Operation, Stamp, Vector
from convoy_workloads.serving.replication.peer import Peer
from convoy_workloads.serving.replication.transport import Unreachable

if TYPE_CHECKING:
    from convoy_workloads.serving.replication.replicator import Replicator

STAMPS = 4096
"""Number of stamps in a message."""
READ_ATTEMPTS = 100
"""Maximum number of attempts to read the payloads of keys that change meanwhile."""
STALLED_SECONDS = 30.0
"""Time after which a peer that reads nothing of a state counts as lost."""
READ_KEYS = 64
"""Number of keys whose payloads are read at a time."""
T = TypeVar("T")


class Join:
    """The way of one replica into its job."""

    def __init__(self, replicator: Replicator, *, fresh: bool) -> None:
        """`fresh`: True if the replica has no operation."""
        self._replicator = replicator
        self._fresh = fresh
        self._deferring = fresh
        self._deferred: list[Operation] = []
        self._deferred_bytes = 0
        self._reading = asyncio.Lock()
        self._sending: dict[object, float] = {}
        """Time at which each state that is sent was last read from."""

    def accepts(self) -> bool:
        """Return True if further operations may be merged; False if no more can be deferred.

        If nothing is read that they wait for, they are applied, and the replica gets winners from now on.
        """
        if self._deferred_bytes < self._replicator.settings.deferred_bytes:
            return True
        if not self._reading.locked():
            self._apply_deferred()
        return not self._deferring

    def defer(self, won: Sequence[Operation]) -> bool:
        """Keep operations until the state is there. Return False if they may be applied at once."""
        if not self._deferring:
            return False
        self._deferred += won
        self._deferred_bytes += sum(one.size for one in won)
        return True

    async def run(self) -> None:
        """Wait until the replica has caught up, and then let it serve.

        First it takes over what each peer had at the first contact. Then it counts as a copy for its peers,
        and takes over what they have acknowledged without a copy until then.
        """
        await self._wait_for(lambda one: one.synced, alone=not self._fresh)
        self._apply_deferred()
        self._replicator.counts_as_copy = True
        # Peers that were left out before are left out again.
        await self._wait_for(lambda one: one.settled or not one.synced, alone=True)
        self._replicator.caught_up.set()
        log_line(f"replication: caught up with {len(self._replicator.peers)} peers")

    async def _wait_for(self, reached: Callable[[Peer], bool], *, alone: bool) -> None:
        settings, loop = self._replicator.settings, asyncio.get_running_loop()
        began = loop.time()
        while not self._complete(reached, loop.time() - began, alone=alone):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.sync_seconds):
                    await self._replicator.changed()

    def _complete(self, reached: Callable[[Peer], bool], seconds: float, *, alone: bool) -> bool:
        """Return True if the replica has reached its peers, or if no peer can help it. `seconds`: time that
        has passed.

        A peer that responds is waited for as long as it takes. One that does not respond is left out after
        the deadline. `alone`: True if all may be left out. A replica without data needs one that responds.
        """
        known, settings = self._replicator.addresses, self._replicator.settings
        if self._reading.locked():
            return False
        if known is None:
            return self._replicator.counts_as_copy or seconds >= settings.join_seconds
        peers = self._replicator.peers
        behind = [one for one in peers if not reached(one)]
        if not behind:
            return True
        since = asyncio.get_running_loop().time() - settings.join_seconds
        if seconds < settings.join_seconds or any(one.responded_at >= since for one in behind):
            return False
        return alone or len(behind) < len(peers)

    async def fetch(self, peer: Peer, target: Vector) -> None:
        """Take over the state of a peer, unless all operations of the version vector are known by then.
        Raises Unreachable if the peer does not answer, is busy or answers with an error.
        """
        replicator = self._replicator
        async with self._reading:
            if replicator.covers(target):
                return
            request = Pull(replicator.sender, replicator.log.vector, self._deferring)
            async with contextlib.aclosing(replicator.transport.state(peer.address, request)) as parts:  # type: ignore[type-var]
                await self._read(parts)

    async def _read(self, parts: AsyncIterator[Message]) -> None:
        found = await anext(parts, None)
        if isinstance(found, Busy):
            raise Unreachable("is busy")
        if not isinstance(found, StateBegin) or (found.whole and not self._deferring):
            raise Unreachable("responds with a wrong state")
        if found.whole:
            await self._restore(found, parts)
        else:
            await self._merge(found, parts)

    async def _restore(self, begin: StateBegin, parts: AsyncIterator[Message]) -> None:
        """Restore the engine's whole state."""
        stamps: dict[bytes, Stamp] = {}
        complete = False

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal complete
            async for one in parts:
                match one:
                    case StateStamps():
                        stamps.update(one.stamps)
                    case StateChunk():
                        yield one.data
                    case StateEnd():
                        complete = True
                        return
                    case _:
                        raise Unreachable("sends a wrong part of a state")
            raise Unreachable("has ended a state too early")

        try:
            await self._replicator.store.restore(chunks())
        except Unreachable:
            raise
        except Exception as error:  # Any error of the engine; another peer may have a state that it accepts.
            raise Unreachable(f"sends a state that is refused: {type(error).__name__}: {error}") from error
        if not complete:
            raise Unreachable("sends more than the engine has read")
        self._deferred += self._replicator.log.adopt(begin.vector, stamps)
        self._apply_deferred()

    async def _merge(self, begin: StateBegin, parts: AsyncIterator[Message]) -> None:
        """Merge winners of keys."""
        self._apply_deferred()
        replicator = self._replicator
        async for one in parts:
            match one:
                case StateWinners():
                    replicator.apply(replicator.log.merge_winners(one.operations))
                case StateEnd():
                    replicator.apply(replicator.log.adopt(begin.vector))
                    return
                case _:
                    raise Unreachable("sends a wrong part of a state")
        raise Unreachable("has ended a state too early")

    def _apply_deferred(self) -> None:
        """Apply the deferred operations that still are the newest of their keys. Defer no further ones."""
        self._deferring = False
        found, self._deferred, self._deferred_bytes = self._deferred, [], 0
        if won := [one for one in found if self._replicator.log.stamp(one.key) == one.stamp]:
            self._replicator.store.apply(won)

    async def supply(self, request: Pull) -> AsyncIterator[Message]:
        """Yield the state of this replica for a peer.

        A peer that has stopped to read, as on a machine that is lost, holds no place from others.
        """
        loop, transfer = asyncio.get_running_loop(), object()
        read = sum(loop.time() - at < STALLED_SECONDS for at in self._sending.values())
        if self._deferring or read >= self._replicator.settings.states:
            yield Busy()
            return
        self._sending[transfer] = loop.time()
        try:
            async with contextlib.aclosing(self._state(request)) as parts:
                async for one in parts:
                    self._sending[transfer] = loop.time()
                    yield one
        except TimeoutError:
            log_line("replication: a state was cut off, because keys change too fast")
        finally:
            self._sending.pop(transfer, None)

    async def _state(self, request: Pull) -> AsyncGenerator[Message]:
        replicator = self._replicator
        # The version vector and the stamps are those of the state. What comes while it is sent is sent
        # later.
        vector = replicator.log.vector
        snapshot = replicator.store.snapshot() if request.whole else None
        if snapshot is None:
            keys = replicator.log.lacking(request.vector)
            yield StateBegin(replicator.sender, vector)
            async for winners in self._winners(keys):
                yield StateWinners(winners)
        else:
            stamps = replicator.log.stamps()
            yield StateBegin(replicator.sender, vector, True)
            for some in _batches(iter(stamps.items()), STAMPS):
                yield StateStamps(dict(some))
                await asyncio.sleep(0)
            async for part in snapshot:
                yield StateChunk(part)
        yield StateEnd()

    async def _winners(self, keys: Sequence[bytes]) -> AsyncIterator[list[Operation]]:
        """Yield the winners of keys, as they are when they are read, in batches."""
        batch: list[Operation] = []
        size = 0
        for some in _batches(iter(keys), READ_KEYS):
            for one in await self._read_winners(some):
                if batch and size + one.size > self._replicator.settings.batch_bytes:
                    yield batch
                    batch, size = [], 0
                batch.append(one)
                size += one.size
        if batch:
            yield batch

    async def _read_winners(self, keys: list[bytes]) -> list[Operation]:
        """Return the winners of keys. A key that changes while its payload is read is read again: a payload
        must not get the stamp of another operation. Raises TimeoutError if one changes at each attempt.
        """
        log = self._replicator.log
        found: list[Operation] = []
        for _ in range(READ_ATTEMPTS):
            if not keys:
                return found
            stamps = [log.stamp(key) for key in keys]
            payloads = await self._replicator.store.payloads(keys)
            changed = []
            for key, stamp, payload in zip(keys, stamps, payloads, strict=True):
                if stamp is None or log.stamp(key) != stamp:
                    changed.append(key)
                else:
                    found.append(Operation(stamp, key, payload))
            keys = changed
        raise TimeoutError


def _batches(items: Iterator[T], count: int) -> Iterator[list[T]]:
    while batch := list(itertools.islice(items, count)):
        yield batch
