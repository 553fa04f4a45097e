"""The available memory of the agent's container, and the number of its processes that were killed because
memory ran out.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from convoy_agents.guard.sweep import cgroup

_RESERVED = 64 * 2**20
"""Bytes that a probe must leave for the agent itself."""


def available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes of memory that a probe may use; None if neither the node nor a cgroup reports a
    limit.
    """
    found = [size for size in (_node(meminfo), _v2(cgroup.own_v2()), _v1(cgroup.own_v1("memory"))) if size]
    return max(1, min(found) - _RESERVED) if found else None


def oom_kills() -> int:
    """Return the number of out-of-memory kills in the agent's container; 0 if the kernel does not report
    this number.
    """
    total = 0
    for folder, name in ((cgroup.own_v2(), "memory.events"), (cgroup.own_v1("memory"), "memory.oom_control")):
        if folder:
            total += _rows(folder / name).get("oom_kill", 0)
    return total


def _node(meminfo: Path) -> int | None:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _v2(folder: Path | None) -> int | None:
    """Return the available bytes in a cgroup v2; None without a limit. Inactive page cache counts as
    available.
    """
    return _available_in(folder, "memory.max", "memory.current", "inactive_file")


def _v1(folder: Path | None) -> int | None:
    return _available_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _available_in(folder: Path | None, bound: str, used: str, idle: str) -> int | None:
    # Without a limit, the file contains `max` or is missing. Reading it then raises an error, so the result
    # is None.
    with contextlib.suppress(OSError, ValueError):
        if folder := cgroup.nearest_with(folder, bound):
            maximum, now = int((folder / bound).read_text()), int((folder / used).read_text())
            return max(1, maximum - now + _rows(folder / "memory.stat").get(idle, 0))
    return None


def _rows(path: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
    return {}
