"""Plain programs that do only what a save or a restore cannot avoid: copies and digests of as many bytes.

Their times are the bounds of this machine, beside which the other rows can be read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xxhash

from convoy_agents.csi import mounts
from convoy_agents.tiercheck import memory

PIECE = 8 << 20
_CHUNK = 4 << 20
_HUGE_PAGE = 2 << 20
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE, _MADV_DONTNEED = 14, 15, 4
PAGES = {"pages of 4 KiB": _MADV_NOHUGEPAGE, "huge pages": _MADV_HUGEPAGE}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True)
class Area:
    """Private memory of this process that starts at a huge page."""

    address: int
    size: int
    owner: mmap.mmap
    """The mapping, which lives as long as this object."""

    def drop(self) -> None:
        """Return all pages to the kernel, so that the next write gets fresh ones."""
        _libc.madvise(self.address, self.size, _MADV_DONTNEED)


def area(size: int, advice: int) -> Area:
    """Map `size` bytes with this advice about huge pages."""
    owner = mmap.mmap(-1, size + _HUGE_PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    address = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    _libc.madvise(address, size, advice)
    return Area(address, size, owner)


def copy(target: int, source: int, size: int, threads: int) -> None:
    """Copy memory with this many threads."""
    spans = iter([(at, min(PIECE, size - at)) for at in range(0, size, PIECE)])

    def work() -> None:
        for at, length in spans:
            ctypes.memmove(target + at, source + at, length)

    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for one in helpers:
        one.start()
    work()
    for one in helpers:
        one.join()


def digest(address: int, size: int, pool: ThreadPoolExecutor) -> None:
    """Compute the XXH3-128 digests of mapped memory, in chunks, with the threads of the pool."""
    whole = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    chunks = (whole[at : at + _CHUNK] for at in range(0, size, _CHUNK))
    list(pool.map(xxhash.xxh3_128_digest, chunks))


def measure(folder: Path, size: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each plain program in each round, by name. The programs take turns.

    `folder`: where a tmpfs is mounted for the time of the measurement. `size`: bytes of the state.
    """
    found: dict[str, list[float]] = {}
    folder.mkdir()
    mounts.tmpfs(folder, size + (64 << 20))
    try:
        memory.allocate(folder / "file", size)
        with (folder / "file").open("r+b") as file, ThreadPoolExecutor(2) as pool:
            for number in range(rounds + 1):
                for name, seconds in _round(file.fileno(), size, pool).items():
                    if number:  # The first round warms everything up.
                        found.setdefault(name, []).append(seconds)
    finally:
        mounts.unmount(folder)
    return found


def _round(fd: int, size: int, pool: ThreadPoolExecutor) -> dict[str, float]:
    found: dict[str, float] = {}
    for pages, advice in PAGES.items():
        source, target = area(size, advice), area(size, advice)
        ctypes.memset(source.address, 1, size)
        for threads in (1, 2):
            many = f"{threads} thread{'s' * (threads > 1)}"
            target.drop()
            copied = partial(copy, target.address, source.address, size, threads)
            found[f"copy, {pages}, {many}, fresh memory"] = _timed(copied)
            found[f"copy, {pages}, {many}, warm memory"] = _timed(copied)
        if advice == _MADV_HUGEPAGE:
            digests = partial(digest, target.address, size, pool)
            found["digests of mapped memory, 2 threads"] = _timed(digests)
    buffer = mmap.mmap(-1, _CHUNK + 16)
    view = memoryview(buffer)
    for name, start in (("aligned", 0), ("16 bytes off", 16)):
        into = view[start : start + _CHUNK]
        found[f"read of a tmpfs into a buffer, {name}"] = _timed(partial(_read, fd, size, into))
    return found


def _read(fd: int, size: int, into: memoryview) -> None:
    for at in range(0, size - _CHUNK, _CHUNK):
        os.preadv(fd, [into], at)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
