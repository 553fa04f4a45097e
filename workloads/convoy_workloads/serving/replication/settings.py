"""The settings and the errors of a replicator."""

from __future__ import annotations

from dataclasses import dataclass


class NotAppended(Exception):
    """Raised if operations were not acknowledged. The message says why."""


class NotReady(NotAppended):
    """Raised if the replica has not caught up with its peers yet. Nothing was written."""


class Overloaded(NotAppended):
    """Raised if too many operations wait for their copies. Nothing was written."""


class NotReplicated(NotAppended):
    """Raised if too few peers have confirmed in time. The operations are in the log of this replica, and
    peers get them later: it is safe to send them again.
    """


class LogFailed(NotAppended):
    """Raised if the durable log of this replica failed. The operations may appear after a restart."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a replicator. Times are in seconds."""

    copies: int | None = None
    """Number of peers that must confirm an operation before it is acknowledged. None for one if there are
    peers that have caught up, else for none.
    """
    ack_seconds: float = 5.0
    """Longest time until an operation is acknowledged."""
    sync_seconds: float = 1.0
    """Seconds between two comparisons with a peer."""
    join_seconds: float = 30.0
    """Longest wait, before readiness, for peers that do not respond, or for the first report of peers."""
    contact_seconds: float = 10.0
    """Seconds for which a replica counts as a peer after its last message if the operator has not reported
    this peer yet.
    """
    pauses: tuple[float, float] = (0.05, 2.0)
    """First and longest pause after a failed request. It doubles after each failure."""
    batch_bytes: int = 1 << 20
    """Size of the operations of a message, and of a write to the log. One operation may be larger."""
    waiting_operations: int = 100_000
    waiting_bytes: int = 64 << 20
    """Maximum number and size of the operations that wait to be acknowledged."""
    retained_bytes: int = 64 << 20
    """Maximum size of the operations that are retained for peers that lack them."""
    deferred_bytes: int = 256 << 20
    """Maximum size of the operations that wait while a fresh replica reads the state of a peer."""
    states: int = 2
    """Maximum number of states that are sent at a time."""
