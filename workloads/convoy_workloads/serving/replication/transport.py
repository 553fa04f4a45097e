"""The ways from a replica to its peers, and from the replicator to its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from convoy_workloads.serving.replication.messages import Confirm, Message, Pull, Push, Supply
from convoy_workloads.serving.replication.operation import Operation


class Unreachable(Exception):
    """Raised if a peer does not respond, responds with an error, or is busy. The message says why."""


class Transport(Protocol):
    """The way to the peers. Every call has a deadline, and raises Unreachable."""

    async def push(self, address: str, message: Push) -> Confirm:
        """Send operations to a peer."""
        ...

    async def pull(self, address: str, message: Pull) -> Supply:
        """Request operations from a peer."""
        ...

    def state(self, address: str, message: Pull) -> AsyncIterator[Message]:
        """Request a state from a peer, and yield its parts."""
        ...


class Store(Protocol):
    """The engine's part. The event loop calls all methods."""

    async def log(self, operations: Sequence[Operation]) -> None:
        """Write this replica's own operations to its durable log. When this call returns, they survive the
        end of the process. After an error they may be in the log or not.
        """
        ...

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply operations of this replica or of others, each the newest of its key. Return soon: an engine
        with another thread queues them, in their order.
        """
        ...

    async def payloads(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the payloads of keys, with all operations that were applied before this call; None for a key
        that is deleted.
        """
        ...

    def snapshot(self) -> AsyncIterator[bytes] | None:
        """Return the engine's state, with exactly the operations that were applied before this call, in parts
        of at most `MAX_FRAME` bytes. Return None if the engine has none; peers then get all keys one by one.
        """
        ...

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        """Replace the engine's empty state by the snapshot of a peer. If `parts` raises an error, raise it
        and leave the state empty.
        """
        ...
