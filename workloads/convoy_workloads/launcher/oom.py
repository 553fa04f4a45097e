"""Detects kills by the kernel's out-of-memory killer, from a counter of the container's cgroup.

cgroup v2 has the counter `oom_kill` in memory.events, v1 in memory.oom_control. On v1 the kernel kills one
process: a rank, or a process that a rank has started. With `memory.oom.group` (the kubelet's default on v2)
the kernel kills the whole container with the launcher. Then the kubelet reports OOMKilled to the operator.
"""
# ruff: noqa: PTH118, PTH123 - PID 1 keeps its imports few

from __future__ import annotations

import os
import signal

from convoy_workloads.launcher.rank import Rank
from convoy_workloads.runtime.errors import OTHER

ROOT = "/sys/fs/cgroup"

CHILD_SECONDS = 10.0
"""Seconds. If a rank fails within this time after the kernel has killed a process in the container, the
kill counts as the cause of the failure. A data loader takes up to 5 s to notice a lost worker.
"""


def parse_count(text: str) -> int | None:
    """Return the value of `oom_kill` in the text of memory.events or memory.oom_control; None if the text
    has no such value.
    """
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def counter_paths(membership: str, root: str = ROOT) -> list[str]:
    """Return the paths of the files that may hold the counter, the most likely path first.

    `membership` is the text of /proc/self/cgroup, whose paths are relative to the cgroup namespace. With a
    private namespace, the mount's root is the container's own cgroup. Without a private namespace, the
    mount shows the host's tree. So each file is tried at both places.
    """
    found = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = path.strip("/")
        if controllers == "":
            found += [os.path.join(root, path, "memory.events"), os.path.join(root, "memory.events")]
        elif "memory" in controllers.split(","):
            base = os.path.join(root, "memory")
            found += [
                os.path.join(base, path, "memory.oom_control"),
                os.path.join(base, "memory.oom_control"),
            ]
    return found


class OomDetector:
    """Detects the out-of-memory kills of one incarnation. Kills before the creation of the OomDetector do
    not count.
    """

    def __init__(self, root: str = ROOT, membership: str = "/proc/self/cgroup") -> None:
        self._path = ""
        for path in counter_paths(_read(membership), root):
            if parse_count(_read(path)) is not None:
                self._path = path
                break
        self._count = self._initial_count = self._read_count()
        self._last_kill_at = 0.0

    def poll(self, now: float) -> None:
        """Read the counter. If it has risen, record `now` as the time of the last kill. `now` is in
        seconds, of the same clock at each call.
        """
        count = self._read_count()
        if count > self._count:
            self._count, self._last_kill_at = count, now

    def caused_end(self, rank: Rank, now: float) -> bool:
        """Return True if the out-of-memory killer ended this rank, or ended a process whose loss made the
        rank fail.
        """
        self.poll(now)
        if self._count == self._initial_count or rank.killed:
            return False
        # A shell reports the kill of its program as exit code 128 + 9.
        failed = rank.exit_code in (OTHER, 128 + signal.SIGKILL)
        return rank.signal == signal.SIGKILL or (failed and now - self._last_kill_at < CHILD_SECONDS)

    def _read_count(self) -> int:
        return parse_count(_read(self._path)) or 0


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
