"""Frames of the pod's socket: a 4-byte big-endian length, then one JSON object in UTF-8 with a `type`."""

from __future__ import annotations

import json
import struct
from typing import Any

MAX_FRAME = 256 * 1024
"""Longest body, in bytes. A longer one is an error of the sender and ends the connection."""

_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class FrameError(ValueError):
    """The bytes are no frame: too long, no JSON object, or without `type`."""


def encode(message: Message) -> bytes:
    """The frame of a message; FrameError when it would be longer than `MAX_FRAME`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise FrameError(f"a {message.get('type')!r} message of {len(body)} bytes exceeds {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """The message in a frame's body."""
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"a frame holds no JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("a frame holds no object with a type")
    return message


class Decoder:
    """Cuts a byte stream into messages, however the bytes arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`; FrameError as soon as a length is out of bounds."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes exceeds {MAX_FRAME}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            messages.append(decode(body))
        return messages
