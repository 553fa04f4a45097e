"""How fast the node's disk writes and reads, past the page cache where the file system lets it.

The file never has a name, so nothing is left behind however the child ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from convoy_agents.guard.sweep.probe import Measured, NotAvailable, until

SIZE = 64 * 2**20
"""Bytes of the file; a sample writes or reads all of it."""
_BLOCK = 4 * 2**20
_SPARE = 16
"""The file takes at most one part in so many of the free space."""
_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


def write(accelerator: int, seconds: float) -> Measured:
    """MB/s until the disk says that all of it is there (fsync)."""
    with _file() as (file, block):
        return Measured([_timed(file, block, os.pwritev, sync=True) for _ in until(seconds)])


def read(accelerator: int, seconds: float) -> Measured:
    """MB/s."""
    with _file() as (file, block):
        _timed(file, block, os.pwritev, sync=True)
        samples = []
        for _ in until(seconds):
            # Where O_DIRECT is not taken; elsewhere there is nothing to drop.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            samples.append(_timed(file, block, os.preadv, sync=False))
        return Measured(samples)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Its type, as the kernel names it; empty when that is not known."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""


@contextlib.contextmanager
def _file() -> Iterator[tuple[int, mmap.mmap]]:
    """A file without a name, and a block for it that is aligned as O_DIRECT wants it."""
    folder = Path(tempfile.gettempdir())
    kind = file_system(folder)
    if kind in _MEMORY:
        raise NotAvailable(f"{folder} is in memory ({kind}): CONVOY_PROBE_DIR names a folder on a disk")
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < _SPARE * SIZE:
        raise NotAvailable(f"{folder} has less than {_SPARE * SIZE >> 20} MiB free")
    with contextlib.ExitStack() as stack:
        file = _nameless(folder)
        stack.callback(os.close, file)
        block = mmap.mmap(-1, _BLOCK)
        stack.callback(block.close)
        # Nothing that a disk could shorten.
        block.write(os.urandom(_BLOCK))
        yield file, block


def _nameless(folder: Path) -> int:
    for direct in (os.O_DIRECT, 0):
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | direct, 0o600)
    # File systems that have no such files, overlays among them.
    file, name = tempfile.mkstemp(dir=folder)
    Path(name).unlink()
    return file


def _timed(file: int, block: mmap.mmap, move: object, *, sync: bool) -> float:
    began = time.perf_counter()
    for offset in range(0, SIZE, _BLOCK):
        if move(file, [block], offset) != _BLOCK:  # type: ignore[operator]  # pwritev or preadv
            raise OSError(f"{_BLOCK} bytes were not moved whole")
    if sync:
        os.fsync(file)
    return SIZE / (time.perf_counter() - began) / 1e6
