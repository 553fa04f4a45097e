"""Memory that outlives whoever uses it: one tmpfs per job and node, and the files in it.

Pages of a tmpfs are charged to whoever touches them first. The agent does so in advance, so a trainer that is
killed for its memory, or whose pod goes, takes nothing along, and its first save is as fast as the next ones:
a first touch costs ten times what a copy does.
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
"""Linux 5.14, madvise(2)."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class ShareExhausted(OSError):
    """The job's share of the node's memory is used up."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(errno.ENOSPC, f"{wanted} bytes are needed, {left} are left")
        self.wanted, self.left = wanted, left

    def __str__(self) -> str:
        return f"{self.missing} bytes are missing: {self.wanted} are needed, {self.left} are left"

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit."""
        return self.wanted - self.left


def open_share(folder: Path, size: int) -> None:
    """Makes a tmpfs of so many bytes at `folder`, or gives the one that is there that size. OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.ismount(folder):
        mounts.resize_tmpfs(folder, size)
    else:
        mounts.tmpfs(folder, size)


def close_share(folder: Path) -> None:
    """Gives the memory back. Idempotent. OSError as umount2(2)."""
    mounts.unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def free_bytes(folder: Path) -> int:
    """Bytes that still fit."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def used_bytes(folder: Path) -> int:
    """Bytes that are taken."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def allocate(path: Path, size: int) -> None:
    """A file of at least so many bytes whose pages exist. ShareExhausted when they do not fit; then it is as before.

    It never becomes shorter: what lies in it may be needed.
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
    """Faults all pages of a file in. Without effect on a kernel that cannot (before Linux 5.14)."""
    with contextlib.suppress(OSError), mapped(fd, size, write=True) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        # By ctypes, which lets go of the interpreter's lock meanwhile.
        _libc.madvise(address, size, _MADV_POPULATE_WRITE)


@contextlib.contextmanager
def mapped(fd: int, size: int, *, write: bool = False) -> Iterator[memoryview]:
    """The bytes of a file in memory."""
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
        # Somebody still holds a part of it; the mapping goes with the last.
        with contextlib.suppress(BufferError):
            area.close()


def write_atomic(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write all of a file or nothing, as far as the kernel lives. OSError."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
