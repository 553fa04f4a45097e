"""Memory that the host of a virtual machine has backed already.

The first access to a page that the host has taken back costs the machine up to 4 s per GB: as long as the
transfer to measure. The host takes free pages back within seconds.
"""

from __future__ import annotations

import contextlib
import mmap

_MADV_POPULATE_WRITE = 23
"""The advice MADV_POPULATE_WRITE of madvise(2), which exists since Linux 5.14."""


def touch(size: int) -> None:
    """Touch `size` bytes of memory and free them. Whoever allocates memory next gets these pages."""
    if not size:
        return
    with mmap.mmap(-1, size) as area:
        # Without huge pages the memory is the same, only slower to touch.
        with contextlib.suppress(OSError):
            area.madvise(mmap.MADV_HUGEPAGE)
        area.madvise(_MADV_POPULATE_WRITE)
