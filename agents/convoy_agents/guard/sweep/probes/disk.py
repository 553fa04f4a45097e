"""Measures the speed at which a disk writes and reads a file. It bypasses the page cache if the file system
supports that.

The file has no name, so no file is left behind even if the child is killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from convoy_agents.guard.sweep.probe import Measured, NotAvailable, sample_numbers

SIZE = 64 * 2**20
"""Bytes of the file. Each sample writes or reads the whole file."""
_BLOCK = 4 * 2**20
_MIN_FREE_FILES = 16
"""Minimum free space for the probe, in multiples of the file's size."""
_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


def write(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of writes in MB/s. A sample includes an fsync."""
    with _file() as (file, block):
        return Measured([_timed(file, block, os.pwritev, sync=True) for _ in sample_numbers(seconds)])


def read(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of reads in MB/s."""
    with _file() as (file, block):
        _timed(file, block, os.pwritev, sync=True)
        samples = []
        for _ in sample_numbers(seconds):
            # Drop the file from the page cache, so that the next read comes from the disk. With O_DIRECT this
            # has no effect.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            samples.append(_timed(file, block, os.preadv, sync=False))
        return Measured(samples)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system that contains `folder`, as mountinfo names it; empty if it is
    unknown.
    """
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""


@contextlib.contextmanager
def _file() -> Iterator[tuple[int, mmap.mmap]]:
    """Yield the descriptor of a nameless file, and a block of memory that is aligned as O_DIRECT requires."""
    folder = Path(tempfile.gettempdir())
    kind = file_system(folder)
    if kind in _MEMORY:
        raise NotAvailable(f"{folder} is in memory ({kind}): set CONVOY_PROBE_DIR to a folder on a disk")
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < _MIN_FREE_FILES * SIZE:
        raise NotAvailable(f"{folder} has less than {_MIN_FREE_FILES * SIZE >> 20} MiB free")
    with contextlib.ExitStack() as stack:
        file = _nameless(folder)
        stack.callback(os.close, file)
        block = mmap.mmap(-1, _BLOCK)
        stack.callback(block.close)
        # Fill the block with random data, because a disk could compress other data.
        block.write(os.urandom(_BLOCK))
        yield file, block


def _nameless(folder: Path) -> int:
    for direct in (os.O_DIRECT, 0):
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | direct, 0o600)
    # Some file systems, such as overlayfs, do not support O_TMPFILE. Create a named file there and unlink it.
    file, name = tempfile.mkstemp(dir=folder)
    Path(name).unlink()
    return file


def _timed(file: int, block: mmap.mmap, move: object, *, sync: bool) -> float:
    began = time.perf_counter()
    for offset in range(0, SIZE, _BLOCK):
        if move(file, [block], offset) != _BLOCK:  # type: ignore[operator]  # pwritev or preadv
            raise OSError(f"{_BLOCK} bytes were not transferred completely")
    if sync:
        os.fsync(file)
    return SIZE / (time.perf_counter() - began) / 1e6
