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
_SAMPLE_SCRIPT = f"""
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
_LEAST_SAMPLES = 30
"""Samples of a process that says something about its growth."""


class Sample(NamedTuple):
    """One sample of a process."""

    at: float
    """Seconds, of a clock that never goes back."""
    mib: float
    """Resident."""
    cpu_seconds: float
    """Processor seconds since its start."""


class UsageSummary(NamedTuple):
    """The worst of all processes of a name; None where there was none for long enough."""

    mib: float | None
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

    def summaries(self, least_samples: int = _LEAST_SAMPLES) -> dict[str, UsageSummary]:
        """Verdicts by name, over all processes with so many samples."""
        return {name: self._summary(name, least_samples) for name in _NAMES.values()}

    def _summary(self, name: str, least_samples: int) -> UsageSummary:
        long = [
            one for (known, _, _), one in self.series.items() if known == name and len(one) >= least_samples
        ]
        pairs = [(_median_mib(one[: len(one) // 3]), _median_mib(one[-(len(one) // 3) :])) for one in long]
        return UsageSummary(
            max((after for _, after in pairs), default=None),
            max((after / before for before, after in pairs), default=None),
            max(
                ((one[-1].cpu_seconds - one[0].cpu_seconds) / (one[-1].at - one[0].at) for one in long),
                default=None,
            ),
        )

    def add_lines(self, node: str, lines: str, now: float) -> None:
        """Takes what a node printed."""
        for line in lines.splitlines():
            name, pid, pages, user, system = line.split()
            sample = Sample(now, int(pages) * _PAGE_MIB, (int(user) + int(system)) / _TICKS)
            self.series[_NAMES[name], node, int(pid)].append(sample)


def _median_mib(samples: list[Sample]) -> float:
    return statistics.median(one.mib for one in samples)


class UsageSampler:
    """Samples in the background. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.usage = Usage()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            for node in self._cluster.nodes:
                try:
                    lines = node.run(["sh", "-c", _SAMPLE_SCRIPT])
                except ClusterError:
                    continue  # It is down: that is what a soak is for.
                self.usage.add_lines(node.name, lines, time.monotonic())
