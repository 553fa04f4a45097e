"""Whether the kernel's out-of-memory killer struck this container: a counter of its cgroup, read before and
after.

cgroup v2 has `oom_kill` in memory.events, v1 in memory.oom_control. On v1 one process is killed: a rank, or
one that a rank had started. With `memory.oom.group` (the kubelet's default on v2) the whole container goes,
launcher included; then the kubelet tells the operator (OOMKilled).
"""
# ruff: noqa: PTH118, PTH123 - PID 1 keeps its imports few

from __future__ import annotations

import os
import signal

from convoy_workloads.launcher.rank import Rank
from convoy_workloads.runtime.errors import OTHER

ROOT = "/sys/fs/cgroup"

CHILD_SECONDS = 10.0
"""A rank that fails so soon after a kill fails for it: data loaders take up to 5 s to miss their worker."""


def parse_count(text: str) -> int | None:
    """The `oom_kill` count in memory.events or memory.oom_control; None without one."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def candidates(membership: str, root: str = ROOT) -> list[str]:
    """Files that may hold the counter, best first, for the text of /proc/self/cgroup.

    The path there is relative to the cgroup namespace. Without a private namespace the mount shows the host's
    tree, with one it shows the container's own at its root: so both are tried.
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


class OomWatch:
    """Kills since it was made: of one incarnation."""

    def __init__(self, root: str = ROOT, membership: str = "/proc/self/cgroup") -> None:
        self._path = ""
        for path in candidates(_read(membership), root):
            if parse_count(_read(path)) is not None:
                self._path = path
                break
        self._count = self._base = self._read_count()
        self._struck_at = 0.0

    def look(self, now: float) -> None:
        """Notes when the counter rose; `now` in seconds of any clock, the same at each call."""
        count = self._read_count()
        if count > self._count:
            self._count, self._struck_at = count, now

    def ended(self, rank: Rank, now: float) -> bool:
        """Whether memory is what ended this rank."""
        self.look(now)
        if self._count == self._base or rank.killed:
            return False
        child = rank.exit_code == OTHER and now - self._struck_at < CHILD_SECONDS
        return rank.signal == signal.SIGKILL or child

    def _read_count(self) -> int:
        return parse_count(_read(self._path)) or 0


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
