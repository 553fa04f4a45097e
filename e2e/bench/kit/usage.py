"""Memory and processors of Convoy's own processes on the nodes, sampled while something goes on."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError

EVERY_SECONDS = 10.0
# As the kernel cuts them.
_NAMES = {"convoy-operator": "operator", "convoy-agent": "agent", "convoy-dashboar": "dashboard"}
_LOOK = f"""
for pid in /proc/[0-9]*; do
  name=$(cat $pid/comm 2>/dev/null)
  case "$name" in {"|".join(_NAMES)})
    pages=$(cut -d' ' -f2 $pid/statm 2>/dev/null); ticks=$(cut -d' ' -f14,15 $pid/stat 2>/dev/null)
    [ -n "$ticks" ] && echo "$name ${{pid#/proc/}} $pages $ticks";;
  esac
done
true
"""
_PAGE_MIB = 4096 / 2**20
_TICKS = 100
_ENOUGH = 30
"""Samples of a process that says something about its growth."""


class Sample(NamedTuple):
    """One sample of a process."""

    at: float
    """Seconds, of a clock that never goes back."""
    mib: float
    """Resident."""
    spent: float
    """Processor seconds since its start."""


class Verdict(NamedTuple):
    """The worst of all processes of a name; None where there was none for long enough."""

    most: float | None
    """MiB in the last third."""
    growth: float | None
    """Growth from the first third to the last."""
    cores: float | None
    """Processors in the mean."""


@dataclass
class Usage:
    """Samples by process, in order of time."""

    series: defaultdict[tuple[str, str, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    """Samples by name, node and process number."""

    def verdicts(self, enough: int = _ENOUGH) -> dict[str, Verdict]:
        """Verdicts by name, over all processes with so many samples."""
        return {name: self._verdict(name, enough) for name in _NAMES.values()}

    def _verdict(self, name: str, enough: int) -> Verdict:
        long = [one for (known, _, _), one in self.series.items() if known == name and len(one) >= enough]
        pairs = [(_middle(one[: len(one) // 3]), _middle(one[-(len(one) // 3) :])) for one in long]
        return Verdict(
            max((after for _, after in pairs), default=None),
            max((after / before for before, after in pairs), default=None),
            max(((one[-1].spent - one[0].spent) / (one[-1].at - one[0].at) for one in long), default=None),
        )

    def read(self, node: str, lines: str, now: float) -> None:
        """Takes what a node printed."""
        for line in lines.splitlines():
            name, pid, pages, user, system = line.split()
            sample = Sample(now, int(pages) * _PAGE_MIB, (int(user) + int(system)) / _TICKS)
            self.series[_NAMES[name], node, int(pid)].append(sample)


def _middle(samples: list[Sample]) -> float:
    return statistics.median(one.mib for one in samples)


class Watch:
    """Samples in the background. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen = Usage()

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
                    lines = node.run(["sh", "-c", _LOOK])
                except ClusterError:
                    continue  # It is down: that is what a soak is for.
                self.seen.read(node.name, lines, time.monotonic())
