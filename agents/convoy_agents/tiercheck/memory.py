"""Memory that outlives the processes that use it: one tmpfs for each job on a node, and the files in it.

The kernel charges a page of a tmpfs to the process that touches it first. The agent touches all pages in
advance. So a trainer that is OOM-killed, or whose pod is deleted, loses no pages. It also makes the first
save as fast as later ones: a first touch costs ten times as much as a copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from convoy_agents.csi import mounts

_MADV_POPULATE_WRITE = 23
"""Advice of madvise(2), since Linux 5.14."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class ShareExhausted(OSError):
    """The job's share of the node's memory does not have enough space left."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(errno.ENOSPC, f"{wanted} bytes are needed, {left} are left")
        self.wanted, self.left = wanted, left

    def __str__(self) -> str:
        return f"{self.missing} bytes are missing: {self.wanted} are needed, {self.left} are left"

    @property
    def missing(self) -> int:
        """Bytes that are missing."""
        return self.wanted - self.left


def open_share(folder: Path, size: int) -> None:
    """Mount a tmpfs of so many bytes at `folder`, or resize the one that is mounted there. OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.ismount(folder):
        mounts.resize_tmpfs(folder, size)
    else:
        mounts.tmpfs(folder, size)


def close_share(folder: Path) -> None:
    """Unmount the tmpfs, which releases the memory. Idempotent. OSError as umount2(2)."""
    mounts.unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def free_bytes(folder: Path) -> int:
    """Return the free bytes of a tmpfs."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def used_bytes(folder: Path) -> int:
    """Return the used bytes of a tmpfs."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def allocate(path: Path, size: int) -> None:
    """Make a file of at least so many bytes, with all pages allocated. On ShareExhausted nothing changes.

    A file never shrinks: its content may be needed.
    """
    there = path.stat().st_size if path.exists() else 0
    if there >= size:
        return
    if (wanted := size - there) > (free := free_bytes(path.parent)):
        raise ShareExhausted(wanted, free)
    try:
        with path.open("a+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            os.ftruncate(file.fileno(), size)
            populate(file.fileno(), size)
    except OSError as error:
        if there:
            os.truncate(path, there)
        else:
            path.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise ShareExhausted(size, free) from error
        raise


def populate(fd: int, size: int) -> None:
    """Fault in all pages of a file. It has no effect before Linux 5.14."""
    with contextlib.suppress(OSError), mapped(fd, size, write=True) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        # ctypes releases the GIL during the call.
        _libc.madvise(address, size, _MADV_POPULATE_WRITE)


@contextlib.contextmanager
def mapped(fd: int, size: int, *, write: bool = False) -> Iterator[memoryview]:
    """Map a file into memory."""
    if not size:
        yield memoryview(b"")
        return
    access = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    area = mmap.mmap(fd, size, mmap.MAP_SHARED, access)
    view = memoryview(area)
    try:
        yield view
    finally:
        view.release()
        # Another view still uses the mapping. It is closed with the last view.
        with contextlib.suppress(BufferError):
            area.close()


def write_atomic(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a whole file or nothing. It is not synced: it survives this process, not the kernel. OSError."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
