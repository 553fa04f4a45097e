"""The threads of gloo's process groups, so that the converter finds the group of a work."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

THREAD_NAME = "pt_gloo_runloop"
THREADS_PER_GROUP = 2
"""Threads that torch starts for each group of gloo."""
_TASKS = Path("/proc/self/task")


def threads_of_groups() -> dict[str, str]:
    """Return the process group that each gloo thread belongs to: the name of the group, by thread id.

    The result is empty if there is no torch.distributed, or if the threads do not fit the groups.
    """
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(distributed, "_world", None)
    if world is None:
        return {}
    names = [world.pg_names[group] for group, parts in world.pg_map.items() if _has_gloo(parts)]
    return match_threads(names, gloo_threads(_TASKS))


def match_threads(names: Sequence[str], threads: Sequence[str]) -> dict[str, str]:
    """Return the group of each thread. Both are in the order of creation. Without a match: nothing."""
    if len(threads) != len(names) * THREADS_PER_GROUP:
        return {}
    return {thread: names[place // THREADS_PER_GROUP] for place, thread in enumerate(threads)}


def gloo_threads(tasks: Path) -> list[str]:
    """Return the numbers of gloo's threads of this process in the order of their creation."""
    found = []
    try:
        for task in tasks.iterdir():
            if (task / "comm").read_text().strip() == THREAD_NAME:
                # The fields after the name in brackets; the 20th of them is the start time.
                started = int((task / "stat").read_text().rpartition(")")[2].split()[19])
                found.append((started, int(task.name)))
    except (OSError, ValueError, IndexError):
        return []
    return [str(thread) for _, thread in sorted(found)]


def _has_gloo(parts: Any) -> bool:
    """Return True if a group, described by the value of torch's `pg_map`, has gloo as a backend."""
    backends = parts[0] if isinstance(parts, tuple) and parts else ""
    names = backends.values() if isinstance(backends, Mapping) else [backends]
    return any("gloo" in str(one) for one in names)
