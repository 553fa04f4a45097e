"""The messages between replicas, and their bytes.

A message is one frame, or several in the stream of a state:

    0   magic, "CVRP"
    4   kind of the frame
    5   length of the body, big endian
    9   CRC-32 of kind, length and body
    13  body

The body is binary, because payloads are, and every number and length in it is checked. JSON would need a
third more bytes for payloads, and msgpack would check no lengths before it allocates. TCP's checksum is weak
(16 bits) and ends at each proxy, so a frame has its own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from convoy_workloads.serving.replication.clock import LARGEST
from convoy_workloads.serving.replication.operation import (
    MAX_KEY,
    MAX_PAYLOAD,
    ORIGIN_BYTES,
    Operation,
    Stamp,
    Vector,
)

MAX_FRAME = 12 << 20
"""Maximum number of bytes of a frame."""
MAX_ORIGINS = 100_000
"""Maximum number of origins of a version vector."""
MAGIC = b"CVRP"
HEAD_BYTES = 13
_HEAD = struct.Struct(">4sBII")
_COUNT = struct.Struct(">I")
_KNOWN = struct.Struct(f">{ORIGIN_BYTES}sQ")
_SENDER = struct.Struct(f">{ORIGIN_BYTES}sB")
_OPERATION = struct.Struct(f">{ORIGIN_BYTES}sQQHI")
_STAMP = struct.Struct(f">{ORIGIN_BYTES}sQQH")
_DELETED = 2**32 - 1
"""Length of the payload of an operation that deletes its key."""


class FrameError(ValueError):
    """Raised for bytes that are not a valid message."""


class Kind(IntEnum):
    """The kinds of frames."""

    PUSH = 1
    CONFIRM = 2
    PULL = 3
    SUPPLY = 4
    STATE_BEGIN = 5
    STATE_STAMPS = 6
    STATE_CHUNK = 7
    STATE_WINNERS = 8
    STATE_END = 9
    BUSY = 10


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


def encode(message: Message) -> bytes:
    """Return the frame of a message."""
    match message:
        case Push():
            return _frame(Kind.PUSH, _sender(message.sender) + _operations(message.operations))
        case Confirm():
            return _frame(Kind.CONFIRM, _sender(message.sender) + _vector(message.vector))
        case Pull():
            whole = bytes([message.whole])
            return _frame(Kind.PULL, _sender(message.sender) + whole + _vector(message.vector))
        case Supply():
            body = _sender(message.sender) + bytes([message.trimmed]) + _vector(message.vector)
            return _frame(Kind.SUPPLY, body + _operations(message.operations))
        case StateBegin():
            whole = bytes([message.whole])
            return _frame(Kind.STATE_BEGIN, _sender(message.sender) + whole + _vector(message.vector))
        case StateStamps():
            return _frame(Kind.STATE_STAMPS, _stamps(message.stamps))
        case StateChunk():
            return _frame(Kind.STATE_CHUNK, message.data)
        case StateWinners():
            return _frame(Kind.STATE_WINNERS, _operations(message.operations))
        case StateEnd():
            return _frame(Kind.STATE_END, b"")
        case Busy():
            return _frame(Kind.BUSY, b"")


def decode(frame: bytes) -> Message:
    """Return the message of one frame. Raises FrameError for bytes that are no valid frame."""
    found = Decoder()
    messages = list(found.feed(frame))
    if len(messages) != 1 or found.pending:
        raise FrameError(f"{len(frame)} bytes are not one frame")
    return messages[0]


class Decoder:
    """Splits a stream of bytes into messages. The bytes may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Return the number of bytes that belong to no complete frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that `data` completes. Raises FrameError as soon as a head is wrong."""
        self._buffer += data
        while len(self._buffer) >= HEAD_BYTES:
            magic, kind, length, checksum = _HEAD.unpack_from(self._buffer)
            if magic != MAGIC or length > MAX_FRAME:
                raise FrameError("the head of a frame is wrong")
            if len(self._buffer) < HEAD_BYTES + length:
                return
            body = bytes(self._buffer[HEAD_BYTES : HEAD_BYTES + length])
            if _checksum(kind, body) != checksum:
                raise FrameError("the checksum of a frame is wrong")
            del self._buffer[: HEAD_BYTES + length]
            yield _message(kind, body)


def _frame(kind: Kind, body: bytes) -> bytes:
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes exceeds the limit of {MAX_FRAME}")
    return _HEAD.pack(MAGIC, kind, len(body), _checksum(kind, body)) + body


def _checksum(kind: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack(">BI", kind, len(body))))


def _message(kind: int, body: bytes) -> Message:
    reader = _Reader(body)
    found: Message
    match kind:
        case Kind.PUSH:
            found = Push(reader.sender(), reader.operations())
        case Kind.CONFIRM:
            found = Confirm(reader.sender(), reader.vector())
        case Kind.PULL:
            sender, whole = reader.sender(), reader.flag()
            found = Pull(sender, reader.vector(), whole)
        case Kind.SUPPLY:
            sender, trimmed = reader.sender(), reader.flag()
            found = Supply(sender, reader.vector(), reader.operations(), trimmed)
        case Kind.STATE_BEGIN:
            sender, whole = reader.sender(), reader.flag()
            found = StateBegin(sender, reader.vector(), whole)
        case Kind.STATE_STAMPS:
            found = StateStamps(reader.stamps())
        case Kind.STATE_CHUNK:
            return StateChunk(body)
        case Kind.STATE_WINNERS:
            found = StateWinners(reader.operations())
        case Kind.STATE_END:
            found = StateEnd()
        case Kind.BUSY:
            found = Busy()
        case _:
            raise FrameError(f"unknown kind of frame: {kind}")
    reader.end()
    return found


def _sender(sender: Sender) -> bytes:
    return _SENDER.pack(sender.process, sender.drains | sender.joins << 1)


def _vector(vector: Mapping[bytes, int]) -> bytes:
    return _COUNT.pack(len(vector)) + b"".join(_KNOWN.pack(*one) for one in vector.items())


def _operations(operations: Sequence[Operation]) -> bytes:
    return _COUNT.pack(len(operations)) + b"".join(_parts(operations))


def _parts(operations: Iterable[Operation]) -> Iterator[bytes]:
    for one in operations:
        size = _DELETED if one.payload is None else len(one.payload)
        stamp = one.stamp
        yield _OPERATION.pack(stamp.origin, stamp.sequence, stamp.clock, len(one.key), size)
        yield one.key
        yield one.payload or b""


def _stamps(stamps: Mapping[bytes, Stamp]) -> bytes:
    parts = [_COUNT.pack(len(stamps))]
    for key, one in stamps.items():
        parts += (_STAMP.pack(one.origin, one.sequence, one.clock, len(key)), key)
    return b"".join(parts)


class _Reader:
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
