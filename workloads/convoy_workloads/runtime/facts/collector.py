"""Collects the facts of a run in the first rank of a pod, in a thread of low priority.

The thread starts with the rank's first progress message. It counts the files of the data volumes once, and
then measures the use of processors and accelerators every SAMPLE_SECONDS.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.facts.files import FileCounter, Folder
from convoy_workloads.runtime.facts.mounts import MOUNT_TABLE, data_folders
from convoy_workloads.runtime.facts.processors import ContainerClock
from convoy_workloads.runtime.rank_context import RankContext

if TYPE_CHECKING:
    from convoy_workloads.runtime.facts.accelerators import Devices

SAMPLE_SECONDS = 10.0
NICE = 19


class FactsCollector:
    """The facts that this rank has collected so far. Ranks other than the first of a pod collect none."""

    def __init__(self, context: RankContext) -> None:
        self._wanted = context.launched and bool(context.socket) and context.local_rank == 0
        self._folders: list[Folder] = []
        self._use: dict[str, int] = {}
        self._versions: dict[str, str] = {}

    def message(self) -> dict[str, Any] | None:
        """Return the facts in the form of the `progress` message; None before there are any. The first call
        starts to collect.
        """
        if self._wanted:
            self._wanted = False
            self._versions = versions()
            threading.Thread(target=self._run, name="convoy-facts", daemon=True).start()
        found: dict[str, Any] = {**self._versions, **self._use}
        if self._folders:
            found["folders"] = [one.message() for one in self._folders]
        return found or None

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        clock, devices = ContainerClock(), _devices()
        began, used, busy = time.monotonic(), clock.seconds(), 0.0
        self._folders = count_folders(_mount_table())
        last = began
        while True:
            time.sleep(SAMPLE_SECONDS)
            now, spent, rate = time.monotonic(), clock.seconds(), devices.busy() if devices else None
            busy, last = busy + (rate or 0.0) * (now - last), now
            found = {"ms": int(1000 * (now - began))}
            if spent is not None and used is not None:
                found["cpuMs"] = int(1000 * (spent - used))
            if devices is not None and rate is not None:
                found["accelerators"], found["acceleratorMs"] = devices.count, int(1000 * busy)
            self._use = found


def versions() -> dict[str, str]:
    """Return the versions of Python and, if the program has loaded it, of torch."""
    found = {"python": sys.version.split()[0]}
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = str(getattr(torch, "__version__", ""))
    return found


def count_folders(table: str) -> list[Folder]:
    """Return the files of the data volumes in a mount table, within the limits of FileCounter."""
    counter = FileCounter()
    found = (counter.count(path) for path in data_folders(table))
    return [one for one in found if one is not None]


def _devices() -> Devices | None:
    """Return the devices of the container; None for a Python without ctypes."""
    # Import this here, because ctypes would delay the start of each rank.
    try:
        from convoy_workloads.runtime.facts.accelerators import Devices  # noqa: PLC0415
    except ImportError:
        return None
    return Devices()


def _mount_table() -> str:
    try:
        return MOUNT_TABLE.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
