"""Resident memory of Convoy's own processes on the nodes, while something goes on."""

from __future__ import annotations

import statistics
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError

EVERY_SECONDS = 10.0
NAMES = ("convoy-operator", "convoy-agent")
_LOOK = """
for pid in /proc/[0-9]*; do
  name=$(cat $pid/comm 2>/dev/null)
  case "$name" in convoy-operator|convoy-agent)
    set -- $(cat $pid/statm 2>/dev/null); [ -n "$2" ] && echo "$name ${pid#/proc/} $2";;
  esac
done
true
"""
_PAGE_MIB = 4096 / 2**20
_ENOUGH = 30
"""Samples of a process that says something about its growth."""


@dataclass
class Memory:
    """MiB by process, in order of time."""

    series: defaultdict[tuple[str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """By name, node and process number."""

    def verdicts(self) -> dict[str, tuple[float | None, float | None]]:
        """By name, over all processes that were there long enough: the largest size in the end, and the most
        that one of them grew. None where there was no such process."""
        found: dict[str, tuple[float | None, float | None]] = {}
        for name in NAMES:
            long = [s for (known, _, _), s in self.series.items() if known == name and len(s) >= _ENOUGH]
            pairs = [
                (statistics.median(s[: len(s) // 3]), statistics.median(s[-(len(s) // 3) :])) for s in long
            ]
            found[name.removeprefix("convoy-")] = (
                max((after for _, after in pairs), default=None),
                max((after / before for before, after in pairs), default=None),
            )
        return found


class Watch:
    """Samples in the background. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen = Memory()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            for node in self._cluster.nodes:
                try:
                    lines = node.run(["sh", "-c", _LOOK]).splitlines()
                except ClusterError:
                    continue  # It is down: that is what a soak is for.
                for line in lines:
                    name, pid, pages = line.split()
                    self.seen.series[name, node.name, int(pid)].append(int(pages) * _PAGE_MIB)
