"""The resources that a process has used so far: processor time, page faults, switches, and bytes of calls."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

_TASKS = Path("/proc/self/task")
_NANOSECONDS = 1e9

KINDS = (
    "processor time, main thread",
    "processor time, other threads",
    "page faults",
    "voluntary switches",
    "involuntary switches",
    "bytes read by calls",
    "bytes written by calls",
)
"""Names of the values of `used`, in their order. Times are in seconds."""


def used() -> dict[str, float]:
    """Return what this process has used since its start, by the names in KINDS. Threads that have ended
    count as other threads.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    main = _seconds(threading.main_thread().native_id or 0)
    calls = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    values = (
        main,
        usage.ru_utime + usage.ru_stime - main,
        usage.ru_minflt + usage.ru_majflt,
        usage.ru_nvcsw,
        usage.ru_nivcsw,
        int(calls["rchar"]),
        int(calls["wchar"]),
    )
    return dict(zip(KINDS, map(float, values), strict=True))


def since(before: dict[str, float]) -> dict[str, float]:
    """Return what this process has used since `before`, a result of `used`."""
    return {kind: value - before[kind] for kind, value in used().items()}


def _seconds(thread: int) -> float:
    """Return the processor time of a thread in seconds, from its schedstat, which counts nanoseconds."""
    return int((_TASKS / str(thread) / "schedstat").read_text().split()[0]) / _NANOSECONDS
