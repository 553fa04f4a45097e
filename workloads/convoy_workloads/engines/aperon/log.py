"""The write-ahead log: numbered records with checksums, in files named after their first number.

    0   magic
    4   length of the data, little endian
    8   number of the record
    16  CRC-32 of bytes 4 to 16 and of the data
    20  data

A crash may leave an incomplete last record: it was never acknowledged, and opening cuts it off. A wrong
record that complete ones follow is a damaged file, and an error.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.settings import Options
from convoy_workloads.engines.aperon.storage import AppendFile, Storage

MAGIC = b"HNTL"
_HEAD = struct.Struct("<4sIQI")
MOST_BYTES = 2**30
"""Most bytes of a record."""


def encode_record(number: int, data: bytes) -> bytes:
    """Return a record's bytes."""
    checksum = zlib.crc32(data, zlib.crc32(struct.pack("<IQ", len(data), number)))
    return _HEAD.pack(MAGIC, len(data), number, checksum) + data


def _record_at(content: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Return number, data and end of the record at an offset; None if there is no complete one."""
    if at + _HEAD.size > len(content):
        return None
    magic, length, number, checksum = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + length
    if magic != MAGIC or end > len(content):
        return None
    data = content[at + _HEAD.size : end]
    if zlib.crc32(data, zlib.crc32(struct.pack("<IQ", length, number))) != checksum:
        return None
    return number, data, end


def read_records(path: Path) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records of a file, and the length of its valid part. Raises CorruptFile."""
    content = path.read_bytes()
    found: list[tuple[int, bytes]] = []
    at = 0
    while record := _record_at(content, at):
        number, data, end = record
        if found and number != found[-1][0] + 1:
            raise CorruptFile(path, f"record {number} at byte {at} does not follow record {found[-1][0]}")
        found.append((number, data))
        at = end
    later = content.find(MAGIC, at + 1)
    while later >= 0:
        if _record_at(content, later):
            raise CorruptFile(path, f"the record at byte {at} is damaged, and a complete one follows it")
        later = content.find(MAGIC, later + 1)
    return found, at


def log_path(folder: Path, first: int) -> Path:
    """Return the path of the log whose first record has this number."""
    return folder / f"log-{first:020d}.bin"


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the logs of a folder with the numbers of their first records, in their order."""
    return sorted((int(path.stem.removeprefix("log-")), path) for path in folder.glob("log-*.bin"))


def read_logs(folder: Path, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield all records with a number above `after`. Raises CorruptFile if one is missing."""
    logs = log_files(folder)
    expected = after + 1
    for position, (first, path) in enumerate(logs):
        if position + 1 < len(logs) and logs[position + 1][0] <= expected:
            continue
        if first > expected:
            raise CorruptFile(log_path(folder, expected), f"missing: the next log starts with record {first}")
        records, size = read_records(path)
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
        """Continue the last log of the folder, after its incomplete end is cut off, or start one."""
        self._storage, self._folder, self._options = storage, folder, options
        logs = log_files(folder)
        self._first, path = logs[-1] if logs else (next_number, log_path(folder, next_number))
        records, size = read_records(path) if logs else ([], 0)
        shared = path.exists() and path.stat().st_nlink > 1
        if shared or self._first + len(records) != next_number:
            # A fork shares its first logs. After a power failure a manifest may be on the disk, and the
            # records before it not.
            self._first, path, size = next_number, log_path(folder, next_number), 0
        self._file: AppendFile = storage.open_append(path)
        if size != self._file.size():
            self._file.truncate(size)
            self._file.sync()
        self._next = next_number
        self._synced = time.monotonic()

    def append(self, number: int, data: bytes) -> None:
        """Write a record, and make it durable as the options say."""
        if number != self._next:
            raise ValueError(f"record {number} is not the next one, {self._next}")
        self._file.append(encode_record(number, data))
        self._next += 1
        if self._options.fsync == "always":
            self._file.sync()
        elif self._options.fsync == "interval" and self._due():
            self.sync()

    def _due(self) -> bool:
        return time.monotonic() - self._synced >= self._options.fsync_seconds

    def sync(self) -> None:
        """Wait until all records are on the disk."""
        self._file.sync()
        self._synced = time.monotonic()

    def rotate(self) -> None:
        """Continue with a fresh file."""
        if self._next == self._first:
            return
        if self._options.fsync != "never":
            self._file.sync()
        self._file.close()
        self._first = self._next
        self._file = self._storage.open_append(log_path(self._folder, self._first))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
