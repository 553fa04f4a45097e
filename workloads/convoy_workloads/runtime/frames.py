"""The frames on the pod's socket. A frame is a 4-byte big-endian length, then one JSON object in UTF-8 with
a `type`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

MAX_FRAME = 256 * 1024
"""Maximum size of a frame's body in bytes. A larger body is an error of the sender and ends the connection.
"""

_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class FrameError(ValueError):
    """Raised for bytes that are not a frame: too long, not a JSON object, or without `type`."""


def encode(message: Message) -> bytes:
    """Return the frame of a message. Raises FrameError if its body exceeds `MAX_FRAME`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise FrameError(
            f"a {message.get('type')!r} message of {len(body)} bytes exceeds the limit of {MAX_FRAME}"
        )
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Return the message in a frame's body. Raises FrameError if the body is not a message."""
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"a frame is not JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("a frame is not a JSON object with a type")
    return message


class Decoder:
    """Splits a stream of bytes into messages. The bytes may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes. Raises FrameError as soon as a length exceeds
        `MAX_FRAME`.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            messages.append(decode(body))
        return messages
