"""The memory of the process that converts a trace, which must never cost the training its own."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

FACTOR = 12
"""Bytes of memory for each byte of torch's files. Measured: 9.6 to 10.2 (torch 2.13, Python 3.11)."""
BASE_BYTES = 64 * 2**20
"""Bytes of memory in addition."""
CGROUP = Path("/sys/fs/cgroup")
MOST_KILLABLE = 1000
"""The value of oom_score_adj by which the kernel ends this process before all others."""


class TooLittleMemory(Exception):
    """Raised if the pod has too little memory left for a conversion."""


def prefer_to_kill() -> None:
    """Let the kernel end this process first if memory is short, and give others the processor."""
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(MOST_KILLABLE))


def limit_memory(json_bytes: int, cgroup: Path = CGROUP) -> None:
    """Limit the memory of this process to what the conversion of files of `json_bytes` needs.

    Raises TooLittleMemory if the pod has less left. A score alone does not save the training: since
    Kubernetes 1.28 the kernel ends all processes of a container together (memory.oom.group of cgroup v2).
    """
    needed = FACTOR * json_bytes + BASE_BYTES
    left = free_bytes(cgroup)
    if left is not None and left < needed:
        raise TooLittleMemory(
            f"it may need {_mebibytes(needed)} MiB of memory, and the pod has {_mebibytes(left)} MiB left"
        )
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + needed
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))


def free_bytes(cgroup: Path) -> int | None:
    """Return the bytes that the container may still use; None without a limit, or without cgroup v2.

    Unused pages of files count as free, because the kernel drops them first.
    """
    try:
        most, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return None if most == "max" else int(most) - int(used) + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return None


def _mebibytes(size: int) -> int:
    return max(size, 0) // 2**20
