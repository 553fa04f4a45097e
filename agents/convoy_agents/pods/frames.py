"""The codec of the pod socket: a 4-byte big-endian length, then a UTF-8 JSON object with a "type"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_FRAME = 256 * 1024
"""Maximum bytes of the JSON text. A longer frame ends the connection."""
HEADER = 4


class FrameError(ValueError):
    """The bytes are not a valid frame. The connection cannot continue."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one frame. FrameError if it exceeds MAX_FRAME or is not valid JSON (for example
    NaN).
    """
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes exceeds the maximum of {MAX_FRAME}")
    return len(body).to_bytes(HEADER, "big") + body


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Return the object in a frame's body. FrameError unless it is a JSON object with a string "type"."""
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError('a frame is a JSON object with a string "type"')
    return message


class Decoder:
    """Splits a byte stream into frames. It buffers less than one frame beyond the latest input."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Buffered bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the frames that `data` completes. After a FrameError the decoder is unusable."""
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
