"""The frames of an export: all records of an index, in one stream.

    0   length of the data, little endian
    4   kind: S settings, R records, E end
    5   data

The first frame has the settings and the number of records as JSON. A frame of records is an operation
(`operations.py`). The last frame has the number of records, and the SHA-256 of all frames before it. A stream
without it was cut, and is an error.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy_crds.shown import error_line
from convoy_workloads.engines.aperon import operations
from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon.state import State

FORMAT = 1
MOST_BYTES = 256 << 20
"""Most bytes of a frame's data: 256 records, each with 64 keywords of 1024 characters, have less."""
_ROWS = 256
_VECTOR_BYTES = 1 << 20
"""Bytes of vectors in a frame, unless one vector has more."""
_HEAD = struct.Struct("<Ic")
_SETTINGS, _RECORDS, _END = b"S", b"R", b"E"


class ExportError(AperonError):
    """An export is cut or damaged."""


class Cursor:
    """A walk through the records of a state. The state does not change, so neither do the records."""

    def __init__(self, state: State, dimension: int) -> None:
        self.records = state.live
        self._batches = _batches(state, max(1, min(_ROWS, _VECTOR_BYTES // (4 * dimension))))

    def next(self) -> bytes:
        """Return the next records as an operation; nothing after the last ones."""
        found = next(self._batches, None)
        return b"" if found is None else operations.encode(found)


def _batches(state: State, most: int) -> Iterator[Upsert]:
    for view in state.segments:
        yield from _of_source(view, view.segment.rows_of(view.alive), most)
    for memory in state.memory:
        yield from _of_source(memory, memory.live_rows, most)


def _of_source(source: Any, rows: Any, most: int) -> Iterator[Upsert]:
    for at in range(0, len(rows), most):
        own = rows[at : at + most]
        vectors = np.ascontiguousarray(source.vectors_at(own))
        yield Upsert(source.ids_at(own), vectors, source.records_at(own))


class Encoder:
    """The frames of a stream, in their order."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def settings(self, settings: IndexSettings, records: int) -> bytes:
        """Return the first frame."""
        return self._frame(_SETTINGS, _json(format=FORMAT, settings=settings.as_json(), records=records))

    def records(self, data: bytes) -> bytes:
        """Return a frame of records."""
        return self._frame(_RECORDS, data)

    def end(self, records: int) -> bytes:
        """Return the last frame."""
        return self._frame(_END, _json(records=records, sha256=self._digest.hexdigest()))

    def _frame(self, kind: bytes, data: bytes) -> bytes:
        found = _HEAD.pack(len(data), kind) + data
        self._digest.update(found)
        return found


def _json(**values: Any) -> bytes:
    return json.dumps(values).encode()


@dataclass(frozen=True, slots=True)
class Exported:
    """An export that is being read."""

    settings: IndexSettings
    records: int
    """Number of records that the stream announces."""
    batches: Iterator[Upsert]
    """The records. Raises ExportError, after the last batch at the latest, if the stream is not whole."""


def read(source: Callable[[int], bytes]) -> Exported:
    """Return the export in a stream. `source` returns the next bytes of the stream, at most so many; nothing
    at its end. Raises ExportError if the export is cut or damaged.
    """
    reader = _Reader(source)
    kind, data = reader.frame()
    if kind != _SETTINGS:
        raise ExportError("the stream is no export of an index")
    try:
        head = json.loads(data)
        if head["format"] != FORMAT:
            raise ExportError(
                f"the export has format {head['format']}, and this program reads format {FORMAT}"
            )
        settings, records = IndexSettings(**head["settings"]), int(head["records"])
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"the export's settings cannot be read: {error_line(error)}") from error
    return Exported(settings, records, _read_batches(reader, records))


def _read_batches(reader: _Reader, expected: int) -> Iterator[Upsert]:
    count = 0
    while True:
        digest = reader.digest
        kind, data = reader.frame()
        if kind == _END:
            break
        try:
            found = operations.decode(data)
        except ValueError as error:
            raise ExportError(f"the export is damaged after {count} records: {error}") from error
        if kind != _RECORDS or not isinstance(found, Upsert):
            raise ExportError(f"the export is damaged after {count} records: a frame of another kind")
        count += len(found.ids)
        yield found
    try:
        end = json.loads(data)
        same = (end["records"], end["sha256"], expected) == (count, digest, count)
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise ExportError(f"the export is damaged: {count} records do not fit its last frame")


class _Reader:
    """Reads frames from a stream."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self._bytes = 0

    @property
    def digest(self) -> str:
        """The digest of all frames so far."""
        return self._digest.hexdigest()

    def frame(self) -> tuple[bytes, bytes]:
        """Return kind and data of the next frame. Raises ExportError if the stream ends in the frame, or the
        frame is damaged.
        """
        head = self._read(_HEAD.size)
        length, kind = _HEAD.unpack(head)
        if length > MOST_BYTES:
            raise ExportError(f"the export is damaged at byte {self._bytes}: a frame of {length} bytes")
        data = self._read(length)
        self._digest.update(head)
        self._digest.update(data)
        return kind, data

    def _read(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            part = self._source(left)
            if not part:
                raise ExportError(f"the export ends after {self._bytes} bytes, before its last frame")
            parts.append(part)
            left -= len(part)
            self._bytes += len(part)
        return b"".join(parts)
