"""The codec of the pod socket: a 4-byte big-endian length, then a UTF-8 JSON object with a "type"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_FRAME = 256 * 1024
"""Bytes of the JSON text; a longer frame ends the connection."""
HEADER = 4


class FrameError(ValueError):
    """The bytes are no frame of this protocol; the connection cannot go on."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame. FrameError when it would exceed MAX_FRAME or is no JSON (NaN included)."""
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes exceeds {MAX_FRAME}")
    return len(body).to_bytes(HEADER, "big") + body


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """The object of one frame's body. FrameError for anything but a JSON object with a string "type"."""
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError('a frame is a JSON object with a string "type"')
    return message


class Decoder:
    """Cuts a byte stream into frames. Holds less than one frame more than it was last fed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The frames completed by `data`. After a FrameError the decoder is of no further use."""
        self._buffer += data
        frames: list[dict[str, Any]] = []
        start = 0
        while len(self._buffer) - start >= HEADER:
            size = int.from_bytes(self._buffer[start : start + HEADER], "big")
            if size > MAX_FRAME:
                raise FrameError(f"a frame of {size} bytes exceeds {MAX_FRAME}")
            end = start + HEADER + size
            if len(self._buffer) < end:
                break
            frames.append(decode(self._buffer[start + HEADER : end]))
            start = end
        del self._buffer[:start]
        return frames


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
