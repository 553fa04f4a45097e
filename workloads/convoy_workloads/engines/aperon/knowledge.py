"""The file with what a replica knows: its version vector, and the stamp of each record's newest operation.

The file is a sequence of blocks, each of which adds to those before: frames of a version vector and of the
stamps that have changed (`replication.messages`). The first block is written atomically. Each other one is on
the disk before the next begins, so a power failure may lose any page of the last block: the log of the index
has its operations, and opening cuts it off. Another block that is damaged is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.serving.replication.frames import MAGIC, Decoder, Kind, encode
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.messages import (
    FrameError,
    Message,
    StateBegin,
    StateEnd,
    StateStamps,
)
from convoy_workloads.serving.replication.operation import Stamp, Vector
from convoy_workloads.serving.replication.recovery import block

FILE = "knowledge.bin"
SLACK = 100_000
"""Number of stamps that may be superseded before the file is written anew."""
_PART = 1 << 20
_BEGIN = MAGIC + bytes([Kind.STATE_BEGIN])
_END = encode(StateEnd())


class Knowledge:
    """The file of one index. One thread at a time uses it."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        """`folder`: that of the index."""
        self._path, self._storage = folder / FILE, storage
        self._first = self._entries = 0

    @property
    def grown(self) -> bool:
        """Return True if most of the file may be superseded, so that it should be replaced."""
        return self._entries > 2 * self._first + SLACK

    def read(self, most_bytes: int) -> OperationLog:
        """Return what the file has, and cut off an incomplete block. `most_bytes`: that of OperationLog.
        Raises CorruptFile if the file is missing or damaged.
        """
        log = OperationLog(most_bytes)
        if not self._path.exists():
            return log
        reader = _Reader(log)
        with self._path.open("rb") as stream:
            wrong = reader.read(iter(lambda: stream.read(_PART), b""))
            stream.seek(reader.end)
            rest = stream.read()
        if _has_block(rest[1:]) or (wrong and not reader.end and _END in rest):
            raise CorruptFile(self._path, f"the block at byte {reader.end} is damaged, and was on the disk")
        file = self._storage.open_append(self._path)
        try:
            if rest:
                file.truncate(reader.end)
            if self._storage.durable:
                file.sync()  # The process before may have died between writing a block and syncing it.
        finally:
            file.close()
        self._first = self._entries = reader.entries
        return log

    def append(self, vector: Vector, stamps: Mapping[bytes, Stamp]) -> None:
        """Add a version vector and the stamps that have changed."""
        if not self._path.exists():
            self.replace(vector, stamps)
            return
        file = self._storage.open_append(self._path)
        try:
            file.append(block(vector, stamps))
            if self._storage.durable:
                file.sync()
        finally:
            file.close()
        self._entries += len(stamps)

    def replace(self, vector: Vector, stamps: Mapping[bytes, Stamp]) -> None:
        """Write the version vector and all stamps."""
        self._storage.write(self._path, [block(vector, stamps)])
        self._first = self._entries = len(stamps)


def _has_block(data: bytes) -> bool:
    """Return True if a block begins in some bytes."""
    at = data.find(_BEGIN)
    while at >= 0:
        with contextlib.suppress(FrameError):
            if any(True for _ in Decoder().feed(data[at:])):
                return True
        at = data.find(_BEGIN, at + 1)
    return False


class _Reader:
    """Reads blocks into a log."""

    def __init__(self, log: OperationLog) -> None:
        self._log = log
        self._decoder = Decoder()
        self._read = 0
        self._vector: Vector | None = None
        self._stamps: dict[bytes, Stamp] = {}
        self.end = 0
        """Offset of the end of the last complete block."""
        self.entries = 0

    def read(self, parts: Iterable[bytes]) -> bool:
        """Read the parts of a file. Return True if a frame is wrong."""
        try:
            for part in parts:
                self._read += len(part)
                for one in self._decoder.feed(part):
                    self._add(one)
        except FrameError:
            return True
        return False

    def _add(self, one: Message) -> None:
        match one:
            case StateBegin():
                self._vector, self._stamps = one.vector, {}
            case StateStamps() if self._vector is not None:
                self._stamps.update(one.stamps)
            case StateEnd() if self._vector is not None:
                self._log.adopt(self._vector, self._stamps)
                self.entries += len(self._stamps)
                self.end = self._read - self._decoder.pending
                self._vector = None
            case _:
                raise FrameError(f"a frame of another kind: {type(one).__name__}")
