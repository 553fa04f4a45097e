"""Records in the files of a folder. They are read in parts, and the vectors are mapped from the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import Records, SourceError, batch_rows, settings_of

VECTORS, IDS_TEXT, IDS_ARRAY, METADATA = "vectors.npy", "ids.txt", "ids.npy", "metadata.jsonl"
_LONGEST_LINE = 1 << 20


def read(params: Params, folder: str) -> Records:
    """Return the records in a folder. Raises SourceError, with the file, for wrong records."""
    path = Path(folder)
    vectors = _array(path / VECTORS)
    if vectors.ndim != 2 or not vectors.size:
        raise SourceError(f"{path / VECTORS}: shape {list(vectors.shape)}, expected [vectors, components]")
    if vectors.dtype != np.dtype("<f4"):
        raise SourceError(
            f"{path / VECTORS}: type {vectors.dtype.str}, expected <f4: save it as `vectors.astype('<f4')`"
        )
    settings = settings_of(params, vectors.shape[1], str(path / VECTORS))
    return Records(settings, _batches(path, vectors, numbers=params.id_type == "uint64"))


def _array(file: Path) -> np.ndarray[Any, Any]:
    try:
        found: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    return found


def _batches(path: Path, vectors: np.ndarray[Any, Any], *, numbers: bool) -> Iterator[Upsert]:
    rows, most = len(vectors), batch_rows(vectors.shape[1])
    ids = _ids(path, rows, numbers=numbers)
    records = _Lines(path / METADATA, rows) if (path / METADATA).exists() else None
    for at in range(0, rows, most):
        count = min(most, rows - at)
        own: list[Record] = [{}] * count
        if records is not None:
            own = [_object(*one) for one in records.read(count)]
        yield Upsert(ids.read(count), np.array(vectors[at : at + count]), own)
    ids.end()
    if records is not None:
        records.end()


def _object(where: str, line: str) -> Record:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise SourceError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{where}: must be a JSON object")
    return found


def _ids(path: Path, rows: int, *, numbers: bool) -> _TextIds | _ArrayIds | _RowNumbers:
    text, array = path / IDS_TEXT, path / IDS_ARRAY
    if text.exists() and array.exists():
        raise SourceError(f"{path} has {IDS_TEXT} and {IDS_ARRAY}: delete one of them")
    if text.exists():
        return _TextIds(text, rows, numbers=numbers)
    return _ArrayIds(array, rows, numbers=numbers) if array.exists() else _RowNumbers(numbers=numbers)


class _Lines:
    """The lines of a file, one for each row."""

    def __init__(self, file: Path, rows: int) -> None:
        self._file, self._rows = file, rows
        self._read = 0
        self._stream: BinaryIO = file.open("rb")

    def read(self, count: int) -> list[tuple[str, str]]:
        """Return the place and the text of each of the next lines."""
        found = []
        for _ in range(count):
            line = self._stream.readline(_LONGEST_LINE)
            where = f"{self._file}, line {self._read + 1}"
            if not line:
                raise SourceError(f"{self._file} has {self._read} lines, and {VECTORS} has {self._rows} rows")
            if len(line) == _LONGEST_LINE:
                raise SourceError(f"{where}: longer than {_LONGEST_LINE} bytes")
            try:
                found.append((where, line.decode().rstrip("\r\n")))
            except UnicodeDecodeError as error:
                raise SourceError(f"{where}: not valid UTF-8") from error
            self._read += 1
        return found

    def end(self) -> None:
        """Check that there is no further line."""
        with self._stream:
            if self._stream.readline(_LONGEST_LINE).strip():
                raise SourceError(f"{self._file} has more lines than {VECTORS} has rows, {self._rows}")


class _TextIds:
    """Ids in the lines of a file."""

    def __init__(self, file: Path, rows: int, *, numbers: bool) -> None:
        self._lines, self._numbers = _Lines(file, rows), numbers

    def read(self, count: int) -> list[Id]:
        """Return the next ids."""
        return [_number(*one) if self._numbers else one[1] for one in self._lines.read(count)]

    def end(self) -> None:
        """Check that there is no further id."""
        self._lines.end()


def _number(where: str, line: str) -> int:
    if not (line.isascii() and line.isdigit()):
        raise SourceError(f"{where}: {line[:40]!r} is no whole number, as ids of type uint64 are")
    return int(line)


class _ArrayIds:
    """Ids in an array."""

    def __init__(self, file: Path, rows: int, *, numbers: bool) -> None:
        self._array, self._at = _array(file), 0
        kinds = "ui" if numbers else "U"
        if self._array.shape != (rows,) or self._array.dtype.kind not in kinds:
            kind = "whole numbers" if numbers else "strings"
            raise SourceError(
                f"{file}: shape {list(self._array.shape)} and type {self._array.dtype.str}, expected {kind}, "
                f"one for each of the {rows} rows of {VECTORS}"
            )

    def read(self, count: int) -> list[Id]:
        """Return the next ids."""
        found: list[Id] = self._array[self._at : self._at + count].tolist()
        self._at += count
        return found

    def end(self) -> None:
        """Do nothing: the number of ids was checked at the start."""


class _RowNumbers:
    """The numbers of rows as ids."""

    def __init__(self, *, numbers: bool) -> None:
        self._numbers, self._at = numbers, 0

    def read(self, count: int) -> list[Id]:
        """Return the next ids."""
        found = range(self._at, self._at + count)
        self._at += count
        return list(found) if self._numbers else [str(one) for one in found]

    def end(self) -> None:
        """Do nothing: there are as many numbers as rows."""
