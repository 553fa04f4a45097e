"""The buffers of a job: files in memory into which the ranks of this node write their shards.

Each rank has at least two buffers for full saves, and may have more for the segments of its journal. The
files are in the folder `buffers` and are named `<owner>-<kind><number>`. The owner is the rank.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from convoy_agents.tiercheck import memory

BASES, SEGMENTS = "", "j"
"""Kinds of buffers, as they appear in file names: for full saves, and for journal segments."""


class Buffers:
    """The buffers of one job on this node. All methods block and are not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, owner: str) -> list[str]:
        """Return the names of all buffers of a rank."""
        return sorted(path.name for path in self._folder.glob(f"{owner}-*"))

    def path(self, name: str) -> Path:
        """Return the path of a buffer's file."""
        return self._folder / name

    def written(self, name: str) -> int:
        """Return the allocated bytes of a buffer (`st_blocks` x 512), at most its length.

        A rank can extend its file without writing to it. The extended part has no allocated pages, so it is
        not counted.
        """
        found = self.path(name).stat()
        return min(found.st_size, found.st_blocks * 512)

    def remove_unused(self, owners: Collection[str], used: Collection[str]) -> None:
        """Remove every buffer whose rank is not in `owners` and whose name is not in `used`."""
        for path in self._folder.iterdir():
            if owner_of(path.name)[0] not in owners and path.name not in used:
                path.unlink()

    def release(self) -> None:
        """Free the memory of all buffers, and remove them.

        A rank may still have a buffer mapped. It then reads zeros, and what it writes uses its own memory
        until it unmaps the buffer.
        """
        for path in self._folder.iterdir():
            memory.free(path)
            path.unlink()

    def allocate(self, names: Collection[str], size: int) -> None:
        """Grow each buffer to at least `size` bytes. If the free part of the job's tmpfs is too small,
        raise ShareExhausted before any buffer grows.
        """
        missing = sum(max(0, size - size_of(self.path(name))) for name in names)
        if missing > (left := memory.free_bytes(self._folder)):
            raise memory.ShareExhausted(missing, left)
        for name in names:
            memory.allocate(self.path(name), size)


def owner_of(name: str) -> tuple[str, str]:
    """Parse a buffer's name. Return the rank that owns the buffer, and the buffer's kind."""
    owner, _, number = name.rpartition("-")
    return owner, SEGMENTS if number.startswith(SEGMENTS) else BASES


def size_of(path: Path) -> int:
    """Return the length of a file in bytes; 0 if the file does not exist."""
    return path.stat().st_size if path.exists() else 0
