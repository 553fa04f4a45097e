"""Operations: what replicas exchange. Each sets or deletes the value of one key."""

from __future__ import annotations

from dataclasses import dataclass

ORIGIN_BYTES = 16
MAX_KEY = 1024
"""Maximum number of bytes of a key."""
MAX_PAYLOAD = 4 << 20
"""Maximum number of bytes of a payload."""
OVERHEAD = 200
"""Bytes that an operation needs in memory beside its key and payload, roughly."""

Vector = dict[bytes, int]
"""A version vector: the highest sequence of each origin up to which all operations are known."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The place of an operation. Of two operations on a key, the one with the larger clock wins; among equal
    clocks, the one with the larger origin.
    """

    clock: int
    """Time of a hybrid logical clock."""
    origin: bytes
    """Id of the life of the process that has made the operation."""
    sequence: int
    """Number of the operation among those of its origin, from 1."""

    @property
    def rank(self) -> tuple[int, bytes]:
        """Return the value by which operations on a key are compared."""
        return self.clock, self.origin


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on one key."""

    stamp: Stamp
    key: bytes
    payload: bytes | None
    """Value of the key, for the engine; None if the operation deletes the key."""

    @property
    def size(self) -> int:
        """Return the bytes that the operation needs in memory, roughly."""
        return OVERHEAD + len(self.key) + len(self.payload or b"")


def check(key: bytes, payload: bytes | None) -> None:
    """Raise ValueError if a key or a payload is too long."""
    if not 0 < len(key) <= MAX_KEY:
        raise ValueError(f"the key has {len(key)} bytes: it must have 1 to {MAX_KEY}")
    if payload is not None and len(payload) > MAX_PAYLOAD:
        raise ValueError(f"the payload has {len(payload)} bytes: it may have at most {MAX_PAYLOAD}")
