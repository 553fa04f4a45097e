"""The exchange with peers at the pace of the index: a writer that is behind gets no further operations, and
operations that do not fit the index are refused where they come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.replica_store import ReplicaStore
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.messages import (
    Busy,
    Confirm,
    Message,
    Pull,
    Push,
    StateWinners,
    Supply,
)
from convoy_workloads.serving.replication.operation import Operation
from convoy_workloads.serving.replication.peer import Peer
from convoy_workloads.serving.replication.replicator import Entry, Replicator
from convoy_workloads.serving.replication.settings import NotReady, Settings
from convoy_workloads.serving.replication.transport import Transport, Unreachable


@dataclass(slots=True)
class Exchanged:
    """The totals of a replica's exchange with its peers."""

    sent: int = 0
    """Operations that peers have confirmed or got in a response."""
    states: int = 0
    """States of peers that were requested."""


class PacedTransport:
    """The way to the peers, which waits for the writer."""

    def __init__(self, inner: Transport, store: ReplicaStore, totals: Exchanged) -> None:
        self._inner, self._store, self._totals = inner, store, totals

    async def push(self, address: str, message: Push) -> Confirm:
        """Send operations to a peer."""
        found = await self._inner.push(address, message)
        self._totals.sent += len(message.operations)
        return found

    async def pull(self, address: str, message: Pull) -> Supply:
        """Request operations from a peer, once the writer is not behind."""
        await self._store.room()
        found = await self._inner.pull(address, message)
        self._check(found.operations)
        return found

    async def state(self, address: str, message: Pull) -> AsyncIterator[Message]:
        """Request a state from a peer. Its parts come as fast as the writer applies them."""
        self._totals.states += 1
        async with contextlib.aclosing(self._inner.state(address, message)) as parts:  # type: ignore[type-var]
            async for one in parts:
                if isinstance(one, StateWinners):
                    await self._store.room()
                    self._check(one.operations)
                yield one

    def _check(self, operations: Sequence[Operation]) -> None:
        try:
            self._store.check(operations)
        except InvalidInput as error:
            raise Unreachable(f"sends an operation that does not fit this index: {error}") from error


class IndexReplicator(Replicator):
    """The replicator of an index."""

    def __init__(
        self,
        store: ReplicaStore,
        transport: Transport,
        settings: Settings,
        *,
        recovered: OperationLog,
        totals: Exchanged,
    ) -> None:
        """`recovered`: the knowledge that an earlier process of this replica left."""
        super().__init__(store, transport, settings, recovered=recovered)
        self._index, self._totals = store, totals
        store.known = self.log

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append operations. Raises NotAppended if they were not acknowledged."""
        if not self._index.attached:
            raise NotReady("this replica has no index yet: send the request again")
        await super().append(entries)

    def on_push(self, message: Push) -> Confirm | Busy:
        """Respond to a push. Raises RequestError if an operation does not fit the index."""
        if message.operations and (self._index.full or self._index.holds_much):
            return Busy()
        try:
            self._index.check(message.operations)
        except InvalidInput as error:
            raise RequestError(400, f"operations: {error}", "operations", "invalid_operation") from error
        return super().on_push(message)

    def on_pull(self, message: Pull) -> Supply:
        """Respond to a pull."""
        found = super().on_pull(message)
        self._totals.sent += len(found.operations)
        return found

    def on_state(self, message: Pull) -> AsyncIterator[Message]:
        """Respond to the request for a state. Without an index there is none."""
        return super().on_state(message) if self._index.attached else _busy()

    def supplied(self, peer: Peer, message: Supply) -> None:
        """Add the operations of a response, unless the writer is behind: then they come again. Those that
        this replica needs to catch up are held in any case.
        """
        behind = self._index.full or (self.caught_up.is_set() and self._index.holds_much)
        super().supplied(peer, replace(message, operations=()) if behind else message)


async def _busy() -> AsyncIterator[Message]:
    yield Busy()
