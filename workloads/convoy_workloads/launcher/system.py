"""Reads facts about the machine and the container, and calls the kernel."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from convoy_workloads.launcher.rank_env import available_cpus, default_interface

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Make this process adopt orphans, as PID 1 does. Return True if it succeeds. It fails in images that
    lack ctypes.
    """
    if os.getpid() == 1:
        return True
    try:
        import ctypes  # noqa: PLC0415

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def can_fork_warm() -> bool:
    """Return True if this version of Python can pass file descriptors to a zygote."""
    return hasattr(os, "memfd_create") and hasattr(socket, "send_fds")


def library() -> str:
    """Return the folder with Convoy's packages: the agent's mount, or the source tree."""
    return str(Path(__file__).resolve().parents[2])


def entry() -> str:
    """Return the path of the script that starts the launcher."""
    beside = Path(library()) / "convoy_launch.py"
    return str(beside if beside.exists() else Path(__file__).with_name("convoy_launch.py"))


def cpus() -> int:
    """Return the number of whole cores that this container may use."""
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/sys/fs/cgroup/cpu.max").read_text()
    return available_cpus(len(os.sched_getaffinity(0)), text)


def interface() -> str:
    """Return the network interface of the default route; an empty text if there is no default route."""
    texts = []
    for path in ("/proc/net/route", "/proc/net/ipv6_route"):
        try:
            texts.append(Path(path).read_text())
        except OSError:
            texts.append("")
    return default_interface(*texts)


def alive(pid: int) -> bool:
    """Return True if a process with this id exists. A zombie counts as existing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
