"""The bytes of a trace file, decompressed within bounds."""

from __future__ import annotations

import zlib
from pathlib import Path

from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.wire.limits import LIMITS, Limits

GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
_CHUNK = 2**20


def load(path: Path, limits: Limits = LIMITS) -> bytes:
    """Return the content of a file, decompressed if it is gzip.

    Raises InvalidTrace if the file cannot be read, is damaged, or is larger than `limits` allow.
    """
    try:
        if not path.is_file():
            raise _invalid(path, Rule.UNREADABLE, "no such file" if not path.exists() else "not a file")
        with path.open("rb") as file:
            data = file.read(limits.file_bytes + 1)
    except OSError as error:
        raise _invalid(path, Rule.UNREADABLE, error.strerror or str(error)) from error
    if len(data) > limits.file_bytes:
        raise _invalid(path, Rule.TOO_LARGE, f"the file has more than {limits.file_bytes} bytes")
    try:
        return decompress(data, limits)
    except InvalidTrace as error:
        raise InvalidTrace(error.findings, str(path)) from error


def decompress(data: bytes, limits: Limits = LIMITS) -> bytes:
    """Return `data`, decompressed if it is gzip. Raises InvalidTrace for damaged or too much data."""
    if not data.startswith(GZIP):
        if len(data) > limits.decompressed_bytes:
            raise _too_much(limits)
        return data
    parts: list[bytes] = []
    size = 0
    most = min(limits.decompressed_bytes, max(limits.small_bytes, limits.expansion * len(data)))
    while data:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            try:
                part = stream.decompress(data, _CHUNK)
            except zlib.error as error:
                found = Finding(Rule.MALFORMED, f"damaged gzip data: {error}", offset=size)
                raise InvalidTrace([found]) from None
            data = stream.unconsumed_tail
            if not part and not data:
                break
            parts.append(part)
            size += len(part)
            if size > limits.decompressed_bytes:
                raise _too_much(limits)
            if size > most:
                text = f"the content has more than {limits.expansion} bytes for each compressed one"
                raise InvalidTrace([Finding(Rule.TOO_LARGE, text)])
        if not stream.eof:
            raise InvalidTrace([Finding(Rule.TRUNCATED, "the gzip data ends too early", offset=size)])
        # A gzip file may have several members, and zeros as padding after the last.
        data = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _too_much(limits: Limits) -> InvalidTrace:
    text = f"the content has more than {limits.decompressed_bytes} bytes"
    return InvalidTrace([Finding(Rule.TOO_LARGE, text)])


def _invalid(path: Path, rule: Rule, text: str) -> InvalidTrace:
    return InvalidTrace([Finding(rule, text)], str(path))
