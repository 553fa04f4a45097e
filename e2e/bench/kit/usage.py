"""Samples the memory and processor time of Convoy's own processes on the nodes."""

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
# Linux truncates process names to 15 characters, so the last letter of `convoy-dashboard` is missing.
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
_WORDS = 5
"""Words of a line of _SAMPLE_SCRIPT."""
_MIN_SAMPLES = 30
"""Minimum number of samples of a process from which a summary is computed."""
WARM_UP_SECONDS = 300.0
"""Seconds of a process's life in which its memory may grow: its first jobs load code and fill its caches."""


class Sample(NamedTuple):
    """Memory and processor time of a process at one moment."""

    at: float
    """Time of the sample, in seconds of the bench's monotonic clock."""
    mib: float
    """Resident memory in MiB."""
    cpu_seconds: float
    """Processor seconds since the process started."""


class UsageSummary(NamedTuple):
    """Largest value of any process with the same name. A value is None if no such process has enough
    samples.
    """

    mib: float | None
    """Median of a process's resident memory, in MiB, over the last third of its samples."""
    growth: float | None
    """Growth of a process's memory after WARM_UP_SECONDS: the median in the last third of these samples,
    divided by the median in their first third.
    """
    cores: float | None
    """Mean number of processors that a process used between its first and its last sample."""


@dataclass
class Usage:
    """Samples of each process, in order of time."""

    series: defaultdict[tuple[str, str, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    """Samples by process name, node and pid. The pid of a process before its node's restart is a negative
    number.
    """

    def summaries(self, min_samples: int = _MIN_SAMPLES) -> dict[str, UsageSummary]:
        """Return a summary by process name. Processes with fewer samples than `min_samples` are left out."""
        return {name: self._summary(name, min_samples) for name in _NAMES.values()}

    def _summary(self, name: str, min_samples: int) -> UsageSummary:
        long = [
            one for (known, _, _), one in self.series.items() if known == name and len(one) >= min_samples
        ]
        warm = [[sample for sample in one if sample.at >= one[0].at + WARM_UP_SECONDS] for one in long]
        return UsageSummary(
            max((_last_third(one) for one in long), default=None),
            max(
                (_last_third(one) / _first_third(one) for one in warm if len(one) >= min_samples),
                default=None,
            ),
            max(
                ((one[-1].cpu_seconds - one[0].cpu_seconds) / (one[-1].at - one[0].at) for one in long),
                default=None,
            ),
        )

    def add_lines(self, node: str, lines: str, now: float) -> None:
        """Add the samples in the lines that _SAMPLE_SCRIPT printed on a node."""
        for line in lines.splitlines():
            words = line.split()
            if len(words) != _WORDS:
                continue  # The process ended while it was read.
            name, pid, pages, user, system = words
            sample = Sample(now, int(pages) * _PAGE_MIB, (int(user) + int(system)) / _TICKS)
            key = _NAMES[name], node, int(pid)
            if (before := self.series[key]) and sample.cpu_seconds < before[-1].cpu_seconds:
                # The node has been started again, and another process has this pid.
                self.series[_NAMES[name], node, -len(self.series)] = self.series.pop(key)
            self.series[key].append(sample)


def _first_third(samples: list[Sample]) -> float:
    """Return the median MiB in the first third of the samples."""
    return statistics.median(one.mib for one in samples[: len(samples) // 3])


def _last_third(samples: list[Sample]) -> float:
    """Return the median MiB in the last third of the samples."""
    return statistics.median(one.mib for one in samples[-(len(samples) // 3) :])


class UsageSampler:
    """A context manager that samples all nodes every EVERY_SECONDS in a background thread."""

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
                    continue  # A soak crashes nodes on purpose, so skip a node that is down.
                self.usage.add_lines(node.name, lines, time.monotonic())
