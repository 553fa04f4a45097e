"""The frames in which messages travel.

A message is one frame, or several in the stream of a state:

    0   magic, "CVRP"
    4   kind of the frame
    5   length of the body, big endian
    9   CRC-32 of kind, length and body
    13  body (`message_parts.py`)

TCP's checksum is weak (16 bits) and ends at each proxy, so a frame has its own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from convoy_workloads.serving.replication.message_parts import (
    BodyReader,
    operations_bytes,
    sender_bytes,
    stamps_bytes,
    vector_bytes,
)
from convoy_workloads.serving.replication.messages import (
    Busy,
    Confirm,
    FrameError,
    Message,
    Pull,
    Push,
    StateBegin,
    StateChunk,
    StateEnd,
    StateStamps,
    StateWinners,
    Supply,
)

MAX_FRAME = 12 << 20
"""Maximum number of bytes of a frame."""
MAGIC = b"CVRP"
HEAD_BYTES = 13
_HEAD = struct.Struct(">4sBII")


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


def encode(message: Message) -> bytes:
    """Return the frame of a message."""
    match message:
        case Push():
            return _frame(Kind.PUSH, sender_bytes(message.sender) + operations_bytes(message.operations))
        case Confirm():
            return _frame(Kind.CONFIRM, sender_bytes(message.sender) + vector_bytes(message.vector))
        case Pull():
            whole = bytes([message.whole])
            return _frame(Kind.PULL, sender_bytes(message.sender) + whole + vector_bytes(message.vector))
        case Supply():
            body = sender_bytes(message.sender) + bytes([message.trimmed]) + vector_bytes(message.vector)
            return _frame(Kind.SUPPLY, body + operations_bytes(message.operations))
        case StateBegin():
            whole = bytes([message.whole])
            return _frame(
                Kind.STATE_BEGIN, sender_bytes(message.sender) + whole + vector_bytes(message.vector)
            )
        case StateStamps():
            return _frame(Kind.STATE_STAMPS, stamps_bytes(message.stamps))
        case StateChunk():
            return _frame(Kind.STATE_CHUNK, message.data)
        case StateWinners():
            return _frame(Kind.STATE_WINNERS, operations_bytes(message.operations))
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
    reader = BodyReader(body)
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
