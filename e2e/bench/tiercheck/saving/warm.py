"""Memory that the host of a virtual machine has backed already.

The first access to a page that the host has taken back costs the machine up to 4 s per GB: as long as the
transfer to measure. The host takes free pages back within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import sys

from e2e.cluster import files

_MODULE = "e2e.bench.tiercheck.saving.warm"
_SECONDS = 120.0
_MADV_POPULATE_WRITE = 23
"""The advice MADV_POPULATE_WRITE of madvise(2), which exists since Linux 5.14."""


async def touch(size: int) -> None:
    """Touch `size` bytes of memory and free them. Whoever allocates memory next gets these pages.

    Another process does so, because Python holds its lock meanwhile, and the agents run in this process.
    """
    if not size:
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _MODULE, str(size)), cwd=files.CHECKOUT
    )
    try:
        await asyncio.wait_for(process.wait(), _SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the program that touches memory ended with exit code {process.returncode}")


def main() -> None:
    """Touch as many bytes as the first argument says."""
    with mmap.mmap(-1, int(sys.argv[1])) as area:
        # Without huge pages the memory is the same, only slower to touch.
        with contextlib.suppress(OSError):
            area.madvise(mmap.MADV_HUGEPAGE)
        area.madvise(_MADV_POPULATE_WRITE)


if __name__ == "__main__":
    main()
