"""Encodes and decodes frames of a pod's socket. A frame is a 4-byte big-endian length and a UTF-8 JSON
object with a "type".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_FRAME = 256 * 1024
"""Maximum bytes of a frame's JSON text. A longer frame is an error that ends the connection."""
HEADER = 4


class FrameError(ValueError):
    """The bytes are not a valid frame. The receiver must close the connection."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one frame. Raises FrameError if the message exceeds MAX_FRAME or is not valid
    JSON, for example because of NaN.
    """
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes exceeds the maximum of {MAX_FRAME}")
    return len(body).to_bytes(HEADER, "big") + body


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object in a frame's body. Raises FrameError unless the body is a JSON object with a
    text as its "type".
    """
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError('a frame is a JSON object with a string "type"')
    return message


class Decoder:
    """Splits a byte stream into frames. Between two calls it buffers at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Return the number of buffered bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Add `data` to the stream, and return the frames that are complete. Raises FrameError for an
        invalid frame; the decoder is then unusable.
        """
        self._buffer += data
        frames: list[dict[str, Any]] = []
        start = 0
        while len(self._buffer) - start >= HEADER:
            size = int.from_bytes(self._buffer[start : start + HEADER], "big")
            if size > MAX_FRAME:
                raise FrameError(f"a frame of {size} bytes exceeds the maximum of {MAX_FRAME}")
            end = start + HEADER + size
            if len(self._buffer) < end:
                break
            frames.append(decode(self._buffer[start + HEADER : end]))
            start = end
        del self._buffer[:start]
        return frames


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")
