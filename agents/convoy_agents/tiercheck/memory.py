"""Memory that survives the processes that use it: one tmpfs for each job on a node, and the files in it.

The kernel charges a page of a tmpfs to the process that touches the page first, so the agent touches all
pages in advance. A trainer that is OOM-killed, or whose pod is deleted, then loses no pages.

The first save is also as fast as later saves, because touching a page first takes ten times as long as
copying it.
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
"""The advice MADV_POPULATE_WRITE of madvise(2), which exists since Linux 5.14."""
_PUNCH_HOLE = 0x02 | 0x01
"""The mode FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of fallocate(2)."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class ShareExhausted(OSError):
    """The free part of the job's share of the node's memory is too small."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(errno.ENOSPC, f"{wanted} bytes were requested, {left} are available")
        self.wanted, self.left = wanted, left

    def __str__(self) -> str:
        return f"{self.missing} more bytes are needed: {self.wanted} requested, {self.left} available"

    @property
    def missing(self) -> int:
        """Number of bytes by which the request exceeds the free part."""
        return self.wanted - self.left


def open_share(folder: Path, size: int) -> None:
    """Mount a tmpfs of `size` bytes at `folder`, or resize the mounted one. Raises OSError if that fails."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.ismount(folder):
        mounts.resize_tmpfs(folder, size)
    else:
        mounts.tmpfs(folder, size)


def close_share(folder: Path) -> None:
    """Unmount the tmpfs, which frees its memory. Idempotent. Raises the OSError of umount2(2)."""
    mounts.unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def free_bytes(folder: Path) -> int:
    """Return the number of free bytes in a tmpfs."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def used_bytes(folder: Path) -> int:
    """Return the number of used bytes in a tmpfs."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def allocate(path: Path, size: int, *, touch: bool = True) -> None:
    """Extend a file to at least `size` bytes and allocate all its pages. Create the file if necessary.
    `touch`: False to leave out the touch of the pages, if the caller writes them all before a rank uses
    them.

    Raises ShareExhausted, and changes nothing, if the free part of the tmpfs is too small. A file never
    shrinks, since its content may be needed.
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
            if touch:
                populate(file.fileno(), size)
    except OSError as error:
        if there:
            os.truncate(path, there)
        else:
            path.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise ShareExhausted(size, free) from error
        raise


def free(path: Path) -> None:
    """Free all pages of a file, but keep its length. A process that has mapped the file then reads zeros. If
    that fails, the pages are freed when nobody uses the file any more.
    """
    with path.open("r+b") as file:
        _libc.fallocate(file.fileno(), _PUNCH_HOLE, 0, os.fstat(file.fileno()).st_size)


def populate(fd: int, size: int) -> None:
    """Touch all pages of a file, so that later writes cause no page faults. Before Linux 5.14 this does
    nothing.
    """
    with contextlib.suppress(OSError), mapped(fd, size, write=True) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        # ctypes releases the GIL during this call, so other threads continue.
        _libc.madvise(address, size, _MADV_POPULATE_WRITE)


@contextlib.contextmanager
def mapped(fd: int, size: int, *, write: bool = False) -> Iterator[memoryview]:
    """Map a file into memory within the block. Yield a view of it."""
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
        # BufferError: another view still uses the mapping. The mapping is closed when that view is released.
        with contextlib.suppress(BufferError):
            area.close()


def write_atomic(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a file completely or not at all. It is not synced, so it survives this process but not a
    reboot.

    Raises OSError if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
