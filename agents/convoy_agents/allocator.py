"""Settings of the C library's memory allocator (glibc, mallopt(3))."""

from __future__ import annotations

import ctypes

KEPT_BYTES = 32 * 2**20
"""Bytes of freed memory that the process keeps for later. It suffices for the chunks of some transfers."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let the process keep up to KEPT_BYTES of freed memory. Return False if the C library has no such
    setting.

    By default glibc returns the memory of each chunk of a checkpoint to the kernel. The next chunk then
    causes a page fault for each of its pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    done = [mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES), mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)]
    return all(done)
