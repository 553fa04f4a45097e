"""The bytes of the parts of a message: senders, version vectors, operations and stamps.

They are binary, because payloads are, and every number and length is checked. JSON would need a third more
bytes for payloads, and msgpack would check no lengths before it allocates.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from convoy_workloads.serving.replication.clock import LARGEST
from convoy_workloads.serving.replication.messages import FrameError, Sender
from convoy_workloads.serving.replication.operation import (
    MAX_KEY,
    MAX_PAYLOAD,
    ORIGIN_BYTES,
    Operation,
    Stamp,
    Vector,
)

MAX_ORIGINS = 100_000
"""Maximum number of origins of a version vector."""
_COUNT = struct.Struct(">I")
_KNOWN = struct.Struct(f">{ORIGIN_BYTES}sQ")
_SENDER = struct.Struct(f">{ORIGIN_BYTES}sB")
_OPERATION = struct.Struct(f">{ORIGIN_BYTES}sQQHI")
_STAMP = struct.Struct(f">{ORIGIN_BYTES}sQQH")
_DELETED = 2**32 - 1
"""Length of the payload of an operation that deletes its key."""


def sender_bytes(sender: Sender) -> bytes:
    """Return the bytes of a sender."""
    return _SENDER.pack(sender.process, sender.drains | sender.joins << 1)


def vector_bytes(vector: Mapping[bytes, int]) -> bytes:
    """Return the bytes of a version vector."""
    return _COUNT.pack(len(vector)) + b"".join(_KNOWN.pack(*one) for one in vector.items())


def operations_bytes(operations: Sequence[Operation]) -> bytes:
    """Return the bytes of operations."""
    return _COUNT.pack(len(operations)) + b"".join(_parts(operations))


def _parts(operations: Iterable[Operation]) -> Iterator[bytes]:
    for one in operations:
        size = _DELETED if one.payload is None else len(one.payload)
        stamp = one.stamp
        yield _OPERATION.pack(stamp.origin, stamp.sequence, stamp.clock, len(one.key), size)
        yield one.key
        yield one.payload or b""


def stamps_bytes(stamps: Mapping[bytes, Stamp]) -> bytes:
    """Return the bytes of the stamps of keys."""
    parts = [_COUNT.pack(len(stamps))]
    for key, one in stamps.items():
        parts += (_STAMP.pack(one.origin, one.sequence, one.clock, len(key)), key)
    return b"".join(parts)


class BodyReader:
    """Reads the parts of a body. All methods raise FrameError."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def part(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self._body[self._at : self._at + size]
        if len(found) != size:
            raise FrameError("a frame is too short for what it says")
        self._at += size
        return found

    def flag(self) -> bool:
        """Return the next byte, 0 or 1."""
        (found,) = self.part(1)
        if found > 1:
            raise FrameError(f"a flag is {found}")
        return bool(found)

    def count(self, least: int) -> int:
        """Return the number of the parts that follow, of which each has at least `least` bytes."""
        found = int(_COUNT.unpack(self.part(_COUNT.size))[0])
        if found * least > len(self._body) - self._at:
            raise FrameError(f"a frame is too short for {found} parts")
        return found

    def sender(self) -> Sender:
        """Return the sender."""
        process, (flags,) = self.part(ORIGIN_BYTES), self.part(1)
        if flags > 3:
            raise FrameError(f"the flags of a sender are {flags}")
        return Sender(process, bool(flags & 1), bool(flags & 2))

    def vector(self) -> Vector:
        """Return a version vector."""
        count = self.count(_KNOWN.size)
        if count > MAX_ORIGINS:
            raise FrameError(f"a version vector has {count} origins")
        return dict(_KNOWN.unpack(self.part(_KNOWN.size)) for _ in range(count))

    def operations(self) -> list[Operation]:
        """Return operations."""
        return [self._operation() for _ in range(self.count(_OPERATION.size))]

    def _operation(self) -> Operation:
        origin, sequence, clock, key, size = _OPERATION.unpack(self.part(_OPERATION.size))
        stamp = _checked(origin, sequence, clock, key)
        if size != _DELETED and size > MAX_PAYLOAD:
            raise FrameError(f"a payload has {size} bytes")
        return Operation(stamp, self.part(key), None if size == _DELETED else self.part(size))

    def stamps(self) -> dict[bytes, Stamp]:
        """Return stamps of keys."""
        found = {}
        for _ in range(self.count(_STAMP.size)):
            origin, sequence, clock, key = _STAMP.unpack(self.part(_STAMP.size))
            stamp = _checked(origin, sequence, clock, key)
            found[self.part(key)] = stamp
        return found

    def end(self) -> None:
        """Check that the body has been read to its end."""
        if self._at != len(self._body):
            raise FrameError(f"a frame has {len(self._body) - self._at} bytes too many")


def _checked(origin: bytes, sequence: int, clock: int, key: int) -> Stamp:
    if not sequence or not 0 < key <= MAX_KEY:
        raise FrameError("an operation has no number, or a key of a wrong length")
    if clock > LARGEST:
        raise FrameError(f"the time of an operation is {clock}")
    return Stamp(clock, origin, sequence)
