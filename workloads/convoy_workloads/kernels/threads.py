"""Threads of kernels: their number from the container's CPU quota, and a pool that splits items."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from convoy_workloads.kernels import library
from convoy_workloads.kernels.errors import InvalidInput, KernelError

MAX_THREADS = 256
CHUNKS_PER_THREAD = 4
"""Chunks for each thread. More than one, so that a thread that the system delays does less."""
_CGROUP = Path("/sys/fs/cgroup")
_FILES = ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


def quota(texts: Mapping[str, str]) -> float | None:
    """Return the CPU quota in cores from the texts of a cgroup's files: `cpu.max` of version 2, or
    `cpu/cpu.cfs_quota_us` and `cpu/cpu.cfs_period_us` of version 1. None: no quota.
    """
    fields = texts.get("cpu.max", "").split()
    if len(fields) != 2:
        fields = [texts.get(name, "").strip() for name in _FILES[1:]]
    try:
        allowed, period = int(fields[0]), int(fields[1])
    except ValueError:
        return None
    return allowed / period if allowed > 0 and period > 0 else None


def thread_count(affinity: int, cores: float | None, share: str = "") -> int:
    """Return the number of threads for a CPU affinity, a quota and the text of OMP_NUM_THREADS.

    A quota of 2.5 cores gives two threads, because a third thread would make the system stop all three for a
    part of each period.
    """
    limits = [affinity, MAX_THREADS]
    if cores is not None:
        limits.append(int(cores))
    if share.isdecimal():
        limits.append(int(share))
    return max(1, min(limits))


def available_threads() -> int:
    """Return the number of threads that this process can run at full speed. The launcher sets OMP_NUM_THREADS
    to a rank's share of the container's cores.
    """
    texts = {}
    for name in _FILES:
        try:
            texts[name] = (_CGROUP / name).read_text()
        except OSError:
            continue
    share = os.environ.get("OMP_NUM_THREADS", "")
    return thread_count(len(os.sched_getaffinity(0)), quota(texts), share)


class ThreadPool:
    """Threads that compute a kernel's items. They sleep between the calls of `run`.

    Calls from several Python threads run one after another. Without the pool's library, the caller's thread
    computes all items.
    """

    def __init__(self, threads: int) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise InvalidInput(f"threads: {threads} is not between 1 and {MAX_THREADS}")
        self._library: Any = None
        self._handle: int | None = None
        self.threads = 1
        if threads == 1:
            return
        try:
            self._library = _bind(library.load("thread_pool"))
        except KernelError as error:
            library.warn_once(f"kernels use one thread: {error}")
            return
        self._handle = self._library.convoy_pool_create(threads)
        if self._handle:
            self.threads = int(self._library.convoy_pool_threads(self._handle))

    def run(self, function: Any, arguments: Any, items: int, *, multiple: int = 1) -> None:
        """Compute the items 0 to `items` - 1 with a kernel's C function.

        Chunks are multiples of `multiple` items. The caller keeps `arguments`, and all that it points to,
        alive and unchanged.
        """
        if self._handle is None:
            function(ctypes.byref(arguments), 0, items)
            return
        share = -(-items // (self.threads * CHUNKS_PER_THREAD))
        chunk = -(-share // multiple) * multiple
        address = ctypes.cast(function, ctypes.c_void_p)
        self._library.convoy_pool_run(self._handle, address, ctypes.byref(arguments), items, chunk)

    def close(self) -> None:
        """Stop the threads."""
        if self._handle is not None:
            self._library.convoy_pool_destroy(self._handle)
            self._handle = None
            self.threads = 1

    def abandon(self) -> None:
        """Drop the threads without stopping them: a forked child has none of its parent's threads."""
        self._handle = None
        self.threads = 1


@cache
def shared_pool(threads: int = 0) -> ThreadPool:
    """Return this process's pool with so many threads. 0: as many as the container can run."""
    found = ThreadPool(threads or available_threads())
    os.register_at_fork(after_in_child=found.abandon)
    return found


os.register_at_fork(after_in_child=shared_pool.cache_clear)


def _bind(loaded: ctypes.CDLL) -> ctypes.CDLL:
    loaded.convoy_pool_create.restype = ctypes.c_void_p
    loaded.convoy_pool_create.argtypes = (ctypes.c_int64,)
    loaded.convoy_pool_threads.restype = ctypes.c_int64
    loaded.convoy_pool_threads.argtypes = (ctypes.c_void_p,)
    loaded.convoy_pool_run.restype = None
    loaded.convoy_pool_run.argtypes = (
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
    )
    loaded.convoy_pool_destroy.restype = None
    loaded.convoy_pool_destroy.argtypes = (ctypes.c_void_p,)
    return loaded
