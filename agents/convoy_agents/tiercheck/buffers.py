"""The buffers of a job: files in memory that the node's own ranks write their shards into.

A rank has at least two buffers for full saves, and some for the segments of its journal. The files are in
the folder `buffers`, named `<owner>-<kind><number>`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from convoy_agents.tiercheck import memory

BASES, SEGMENTS = "", "j"
"""Kinds of buffers, as they appear in file names: for full saves, and for journal segments."""


class Buffers:
    """The buffers of one job. All methods block and are not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, owner: str) -> list[str]:
        """Return the names of a rank's buffers."""
        return sorted(path.name for path in self._folder.glob(f"{owner}-*"))

    def path(self, name: str) -> Path:
        """Return the file of a buffer."""
        return self._folder / name

    def written(self, name: str) -> int:
        """Return the allocated bytes of a buffer (`st_blocks` x 512), at most its length.

        A rank can extend a file without writing to it; the extension has no pages and does not count.
        """
        found = self.path(name).stat()
        return min(found.st_size, found.st_blocks * 512)

    def remove_unused(self, owners: Collection[str], used: Collection[str]) -> None:
        """Remove the buffers that are not in `used` and belong to none of `owners`."""
        for path in self._folder.iterdir():
            if owner_of(path.name)[0] not in owners and path.name not in used:
                path.unlink()

    def allocate(self, names: Collection[str], size: int) -> None:
        """Grow each buffer to at least so many bytes. ShareExhausted, and nothing changes, if they do not
        fit.
        """
        missing = sum(max(0, size - size_of(self.path(name))) for name in names)
        if missing > (left := memory.free_bytes(self._folder)):
            raise memory.ShareExhausted(missing, left)
        for name in names:
            memory.allocate(self.path(name), size)


def owner_of(name: str) -> tuple[str, str]:
    """Return the rank that owns a buffer and the buffer's kind, from its name."""
    owner, _, number = name.rpartition("-")
    return owner, SEGMENTS if number.startswith(SEGMENTS) else BASES


def size_of(path: Path) -> int:
    """Return the length of a file; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0
