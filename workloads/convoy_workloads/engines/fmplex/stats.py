"""The figures of tasks and batches since the start. Only the compute thread changes them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of latencies, in seconds."""
Outcome = Literal["ok", "invalid", "refused", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "invalid", "refused", "failed", "cancelled")


@dataclass(slots=True)
class TaskStats:
    """The figures of one task."""

    outcomes: Counter[str] = field(default_factory=Counter)
    latencies: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Number of complete requests in each bucket."""
    seconds: float = 0.0
    """Sum of the latencies."""
    slo_missed: int = 0
    """Number of complete requests that took longer than the task's target."""
    busy_seconds: float = 0.0
    """Compute time of the task's rows: its share of the time of each batch."""

    def completed(self, seconds: float, slo_seconds: float) -> None:
        """Add a complete request. `slo_seconds`: the task's target; 0 for none."""
        self.outcomes["ok"] += 1
        self.latencies[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        self.slo_missed += bool(slo_seconds) and seconds > slo_seconds


@dataclass(slots=True)
class BatchStats:
    """The figures of all batches."""

    sizes: Counter[int] = field(default_factory=Counter)
    """Number of batches by size."""
