"""The messages between replicas. `frames.py` gives their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from convoy_workloads.serving.replication.operation import Operation, Stamp, Vector


class FrameError(ValueError):
    """Raised for bytes that are not a valid message."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a message."""

    process: bytes
    """Id of the life of the sender's process."""
    drains: bool = False
    """True if the process is about to end, so that its copies do not count."""
    joins: bool = False
    """True if the process has not caught up yet, so that nobody waits for its copies."""


@dataclass(frozen=True, slots=True)
class Push:
    """Operations that the receiver may lack."""

    sender: Sender
    operations: Sequence[Operation] = ()


@dataclass(frozen=True, slots=True)
class Confirm:
    """The response to a push: the version vector of the receiver."""

    sender: Sender
    vector: Vector = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pull:
    """A request for operations, or for a state."""

    sender: Sender
    vector: Vector = field(default_factory=dict)
    """Version vector of the sender."""
    whole: bool = False
    """True to request the engine's whole state, False for the winners that the sender lacks."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The response to a pull: retained operations that the requester lacks."""

    sender: Sender
    vector: Vector = field(default_factory=dict)
    operations: Sequence[Operation] = ()
    trimmed: bool = False
    """True if the requester lacks operations that are not retained, so that it needs a state."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The response to a request that the receiver cannot handle now."""


@dataclass(frozen=True, slots=True)
class StateBegin:
    """The start of a state, with the version vector that it covers."""

    sender: Sender
    vector: Vector = field(default_factory=dict)
    whole: bool = False
    """True if the engine's whole state follows, False if winners of keys do."""


@dataclass(frozen=True, slots=True)
class StateStamps:
    """Stamps of keys in the engine's whole state."""

    stamps: Mapping[bytes, Stamp]


@dataclass(frozen=True, slots=True)
class StateChunk:
    """A part of the engine's whole state."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StateWinners:
    """Part of a state: for each key, the operation that has won."""

    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class StateEnd:
    """The end of a state. Without it, the state is incomplete."""


Message = (
    Push | Confirm | Pull | Supply | Busy | StateBegin | StateStamps | StateChunk | StateWinners | StateEnd
)
