"""The write-ahead log: numbered records with checksums, in files named after their first number.

    0   magic
    4   length of the data, little endian
    8   number of the record
    16  number of the last record that was on the disk when this one was written; 0 if that is not known
    24  CRC-32 of bytes 4 to 24 and of the data
    28  data

A power failure may lose any page of what was not synced, and so leave wrong records that whole ones follow.
None of them was acknowledged: the log ends before the first wrong record, and opening cuts it there. If a
later record says that the wrong one was on the disk, the file is damaged, and that is an error.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.settings import Options
from convoy_workloads.engines.aperon.storage import AppendFile, Storage
from convoy_workloads.runtime.log import log_line

MAGIC = b"HNTL"
_HEAD = struct.Struct("<4sIQQI")
_CHECKED = struct.Struct("<IQQ")
_NAME = re.compile(r"log-(\d{20})\.bin")
MOST_BYTES = 2**30
"""Most bytes of a record."""


class _Record(NamedTuple):
    number: int
    synced: int
    data: bytes
    end: int
    """Offset of what follows the record."""


def encode_record(number: int, data: bytes, synced: int = 0) -> bytes:
    """Return a record's bytes. `synced`: number of the last record that is on the disk."""
    return _HEAD.pack(MAGIC, len(data), number, synced, _checksum(number, synced, data)) + data


def _checksum(number: int, synced: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(_CHECKED.pack(len(data), number, synced)))


def _record_at(content: bytes, at: int) -> _Record | None:
    """Return the record at an offset; None if there is no whole one."""
    if at + _HEAD.size > len(content):
        return None
    magic, length, number, synced, checksum = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + length
    if magic != MAGIC or end > len(content):
        return None
    data = content[at + _HEAD.size : end]
    if _checksum(number, synced, data) != checksum:
        return None
    return _Record(number, synced, data, end)


def read_records(path: Path, first: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records of a file, and the length of its valid part. Raises CorruptFile if the file is
    missing or damaged.

    `first`: number of the first record.
    """
    content = path.read_bytes()
    found: list[tuple[int, bytes]] = []
    at, expected = 0, first
    while record := _record_at(content, at):
        if record.number != expected:
            raise CorruptFile(path, f"record {record.number} at byte {at} stands in the place of {expected}")
        found.append((record.number, record.data))
        at, expected = record.end, expected + 1
    later = content.find(MAGIC, at + 1)
    while later >= 0:
        record = _record_at(content, later)
        if record and record.synced >= expected:
            raise CorruptFile(
                path,
                f"record {expected} at byte {at} is damaged, and was on the disk when record {record.number} "
                "was written",
            )
        later = content.find(MAGIC, later + 1 if record is None else record.end)
    return found, at


def log_path(folder: Path, first: int) -> Path:
    """Return the path of the log whose first record has this number."""
    return folder / f"log-{first:020d}.bin"


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the logs of a folder with the numbers of their first records, in their order."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("log-*.bin"))
    return sorted((int(match[1]), path) for match, path in matches if match)


def read_logs(folder: Path, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield all records with a number above `after`. Raises CorruptFile if one is missing."""
    logs = log_files(folder)
    expected = after + 1
    for position, (first, path) in enumerate(logs):
        if position + 1 < len(logs) and logs[position + 1][0] <= expected:
            continue
        if first > expected:
            raise CorruptFile(log_path(folder, expected), f"missing: the next log starts with record {first}")
        records, size = read_records(path, first)
        if position + 1 < len(logs):
            last = records[-1][0] if records else first - 1
            if size != path.stat().st_size or last + 1 != logs[position + 1][0]:
                raise CorruptFile(
                    path, f"truncated after record {last}: {logs[position + 1][1].name} follows it"
                )
        for number, data in records:
            if number == expected:
                yield number, data
                expected += 1


class Log:
    """The log to which an index appends."""

    def __init__(self, storage: Storage, folder: Path, next_number: int, options: Options) -> None:
        """Continue the last log of the folder, after its wrong end is cut off, or start one."""
        self._storage, self._folder, self._options = storage, folder, options
        self._next = next_number
        self._synced = 0
        """Number of the last record that is on the disk; 0 if that is not known."""
        self._synced_at = time.monotonic()
        logs = log_files(folder)
        self._first, path = logs[-1] if logs else (next_number, log_path(folder, next_number))
        self._file: AppendFile = storage.open_append(path)
        try:
            if logs:
                self._repair(path)
        except BaseException:
            self._file.close()
            raise

    def _repair(self, path: Path) -> None:
        """Cut the wrong end of the last log off. Start another log if this one cannot go on."""
        records, size = read_records(path, self._first)
        if size != self._file.size():
            log_line(
                f"{path}: cut from {self._file.size()} to {size} bytes, after record "
                f"{self._first + len(records) - 1}: a crash left the rest, which was not on the disk"
            )
            self._file.truncate(size)
        if self._options.fsync != "never":
            # The process before may have died between writing records and syncing them.
            self.sync()
        if path.stat().st_nlink > 1 or self._first + len(records) != self._next:
            # A fork shares its first logs. After a power failure a manifest may be on the disk, and the
            # records before it not.
            self._start()

    def append(self, number: int, data: bytes) -> None:
        """Write a record, and make it durable as the options say."""
        if number != self._next:
            raise ValueError(f"record {number} is not the next one, {self._next}")
        self._file.append(encode_record(number, data, self._synced))
        self._next += 1
        if self._options.fsync == "always" or (self._options.fsync == "interval" and self._due()):
            self.sync()

    def _due(self) -> bool:
        return time.monotonic() - self._synced_at >= self._options.fsync_seconds

    def sync(self) -> None:
        """Wait until all records are on the disk."""
        self._file.sync()
        self._synced, self._synced_at = self._next - 1, time.monotonic()

    def rotate(self) -> None:
        """Continue with a fresh file. After an error, the present one goes on."""
        if self._next == self._first:
            return
        if self._options.fsync != "never":
            self.sync()
        self._start()

    def _start(self) -> None:
        """Open a file for the next record, and close the present one."""
        path = log_path(self._folder, self._next)
        try:
            following = self._storage.open_append(path)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)  # The next record comes into the present file.
            raise
        self._file.close()
        self._first, self._file = self._next, following

    def close(self) -> None:
        """Close the file."""
        self._file.close()
