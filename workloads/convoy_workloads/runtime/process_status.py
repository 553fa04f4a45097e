"""Figures about the memory of this process, from /proc/self/status. Standard library only."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")


def status_bytes(name: str) -> int:
    """Return a figure in bytes: `VmRSS`, the resident memory, mapped files among it, or `VmHWM`, its peak.

    Raises RuntimeError if the system does not tell it: only Linux does.
    """
    text = _STATUS.read_text() if _STATUS.exists() else ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return 1024 * int(value.split()[0])
    raise RuntimeError(f"{_STATUS} has no {name}: measuring the memory of a process needs Linux")
