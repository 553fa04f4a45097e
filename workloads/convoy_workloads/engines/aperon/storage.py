"""All changes of an index's files. Tests replace this class to let a process die at any of them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from convoy_workloads.engines.aperon.errors import NoSpace

TEMPORARY = ".tmp"
"""Suffix of files that are not complete. The next open deletes them."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: OSError) -> bool:
    """Return True if an error means that the disk has no space."""
    return error.errno in _FULL


class AppendFile:
    """A file that grows at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, data: bytes) -> None:
        """Write data at the end: all or nothing. Raises NoSpace if the disk is full."""
        before, left = self.size(), memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.truncate(before)
            if is_full(error):
                raise NoSpace(self.path) from error
            raise

    def size(self) -> int:
        """Return the file's length in bytes."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Wait until the data is on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def flush_to_disk(stream: BinaryIO) -> None:
    """Wait until all that was written to a file is on the disk."""
    stream.flush()
    os.fsync(stream.fileno())


class Storage:
    """The file operations of an index."""

    def __init__(self, *, durable: bool = True) -> None:
        """`durable`: files survive a power failure. Otherwise they survive the death of the process."""
        self.durable = durable

    def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file atomically."""
        temporary = path.with_name(path.name + TEMPORARY)
        try:
            with temporary.open("wb") as stream:
                for chunk in chunks:
                    stream.write(chunk)
                if self.durable:
                    flush_to_disk(stream)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)  # A part would keep the disk full.
            raise
        temporary.replace(path)
        self.sync_folder(path.parent)

    def open_append(self, path: Path) -> AppendFile:
        """Open a file for appending, and make it if it is missing."""
        found = AppendFile(path)
        try:
            self.sync_folder(path.parent)
        except OSError:
            found.close()
            raise
        return found

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. The file is complete and does not change."""
        os.link(source, target)

    def remove(self, path: Path) -> None:
        """Delete a file if it is there."""
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names of a folder are on the disk."""
        if not self.durable:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
