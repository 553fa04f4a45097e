"""A storage in which the process dies at a chosen file operation, and the power fails with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np

from convoy_workloads.engines.aperon.storage import TEMPORARY, AppendFile, Storage

_LARGEST_PAGE = 500
"""Most bytes of a page. Records have about 200."""


class Crash(BaseException):
    """The death of the process inside a file operation."""


class FaultyStorage(Storage):
    """A storage in which the process dies at a chosen file operation. Nothing waits for a disk."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(durable=True)
        self.rng = rng
        self.left = -1
        """File operations until the crash; negative: no crash."""
        self.logs: set[FaultyAppendFile] = set()
        """Logs that are open."""

    def dies(self) -> bool:
        """Count an operation. Return True if the process dies in it."""
        self.left -= 1
        return self.left == 0

    def die(self) -> NoReturn:
        """Raise Crash. A log may lose what was not synced: from any byte on, or any page."""
        for one in self.logs:
            one.lose_end() if self.rng.integers(2) else one.lose_page()
        raise Crash

    def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file atomically, or die before its new name, or after."""
        dies = self.dies()
        data = b"".join(bytes(chunk) for chunk in chunks)
        temporary = path.with_name(path.name + TEMPORARY)
        if dies and self.rng.integers(2):
            temporary.write_bytes(data[: int(self.rng.integers(len(data) + 1))])
            self.die()
        temporary.write_bytes(data)
        temporary.replace(path)
        if dies:
            self.die()

    def open_append(self, path: Path) -> AppendFile:
        """Open a file for appending."""
        found = FaultyAppendFile(path, self)
        self.logs.add(found)
        return found

    def remove(self, path: Path) -> None:
        """Delete a file."""
        if self.dies():
            self.die()
        super().remove(path)

    def sync_folder(self, folder: Path) -> None:
        """Do nothing: the names of a folder survive the death of a process."""


class FaultyAppendFile(AppendFile):
    """A log. It knows what was synced."""

    def __init__(self, path: Path, storage: FaultyStorage) -> None:
        super().__init__(path)
        self._storage = storage
        self._synced = 0
        """Bytes that survive a power failure. Of a file that a process has found, that is not known."""

    def lose_end(self) -> None:
        """Cut the file anywhere behind what was synced."""
        self.truncate(int(self._storage.rng.integers(self._synced, self.size() + 1)))

    def lose_page(self) -> None:
        """Replace a range behind what was synced by zeros or by other bytes."""
        rng, size = self._storage.rng, self.size()
        if size == self._synced:
            return
        start = int(rng.integers(self._synced, size))
        length = min(int(rng.integers(1, _LARGEST_PAGE)), size - start)
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(length) if rng.integers(2) else rng.bytes(length))

    def append(self, data: bytes) -> None:
        """Write data at the end, or die in the middle of it."""
        if self._storage.dies():
            super().append(data[: int(self._storage.rng.integers(len(data) + 1))])
            self._storage.die()
        super().append(data)

    def sync(self) -> None:
        """Note that the data is on the disk, or die first."""
        if self._storage.dies():
            self._storage.die()
        self._synced = self.size()

    def close(self) -> None:
        """Close the file."""
        self._storage.logs.discard(self)
        super().close()
