"""The counts and latencies of a load. Tallies of several workers are merged."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from hdrh.histogram import HdrHistogram

from convoy.load.outcome import Kind, Outcome

MAX_FAILURES = 1_000
"""Maximum number of requests that `failures` lists. `causes` counts all of them."""
MAX_CAUSES = 1_000
"""Maximum number of causes. Further ones are counted under `OTHER`."""
OTHER = "other causes"
HIGHEST = 24 * 3600 * 1_000_000
"""Longest latency in microseconds. Longer ones count as this one."""
DIGITS = 3
"""Significant decimal digits of the histograms."""
Cause = tuple[Kind, str]


class Latencies:
    """A histogram of times with high dynamic range. Every value has an error of at most 0.1 %."""

    def __init__(self, encoded: bytes | None = None) -> None:
        """`encoded`: a histogram in the form of `encode`; None for an empty one."""
        self._counts = HdrHistogram.decode(encoded) if encoded else HdrHistogram(1, HIGHEST, DIGITS)

    def record(self, seconds: float) -> None:
        """Add one time."""
        self._counts.record_value(min(HIGHEST, max(1, round(seconds * 1e6))))

    def merge(self, other: Latencies) -> None:
        """Add all times of another histogram."""
        self._counts.add(other._counts)

    def encode(self) -> bytes:
        """Return the histogram in the compressed form of HdrHistogram V2, as base64."""
        encoded: bytes = self._counts.encode()
        return encoded

    @property
    def count(self) -> int:
        """Return the number of times."""
        return int(self._counts.get_total_count())

    def milliseconds(self, percentile: float) -> float | None:
        """Return the time in milliseconds that `percentile` percent of the times do not exceed; None without
        times.
        """
        if not self.count:
            return None
        return round(float(self._counts.get_value_at_percentile(percentile)) / 1000, 2)


@dataclass
class CauseCount:
    """The outcomes with one cause."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0
    """Scheduled times of the first and the last request, in seconds from the start."""
    message: str = ""

    def merge(self, other: CauseCount) -> None:
        """Add the outcomes of another count."""
        if not other.count:
            return
        self.first = min(self.first, other.first) if self.count else other.first
        self.last = max(self.last, other.last) if self.count else other.last
        self.count += other.count
        self.message = self.message or other.message


@dataclass
class Second:
    """The requests that were scheduled in one second of the load."""

    scheduled: int = 0
    ok: int = 0
    total: float = 0.0
    """Sum of the latencies of the complete responses, in seconds."""


@dataclass
class Tally:
    """The counts and latencies of a whole load or of a part."""

    counts: Counter[Kind] = field(default_factory=Counter)
    events: int = 0
    first: Latencies = field(default_factory=Latencies)
    total: Latencies = field(default_factory=Latencies)
    delay: Latencies = field(default_factory=Latencies)
    causes: dict[Cause, CauseCount] = field(default_factory=dict)
    failures: deque[tuple[float, float, str, str]] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    """Scheduled time, time of the end, outcome and cause of the last requests that are not ok. Times are in
    seconds from the start.
    """
    seconds: dict[int, Second] = field(default_factory=dict)
    """The requests of each second from the start."""

    @property
    def scheduled(self) -> int:
        """Return the number of requests."""
        return sum(self.counts.values())

    def add(self, one: Outcome) -> None:
        """Add the outcome of a request."""
        self.counts[one.kind] += 1
        second = self.seconds.setdefault(int(one.scheduled), Second())
        second.scheduled += 1
        if one.kind is not Kind.UNSENT:
            self.delay.record(one.delay)
        if one.kind is Kind.OK:
            self.events += one.events
            self.total.record(one.total)
            if one.events:
                self.first.record(one.first)
            second.ok += 1
            second.total += one.total
            return
        self.failures.append((one.scheduled, one.scheduled + one.total, one.kind.value, one.cause))
        self._cause(one.kind, one.cause).merge(CauseCount(1, one.scheduled, one.scheduled, one.message))

    def merge(self, other: Tally) -> None:
        """Add all outcomes of another tally."""
        self.counts.update(other.counts)
        self.events += other.events
        self.first.merge(other.first)
        self.total.merge(other.total)
        self.delay.merge(other.delay)
        for (kind, cause), count in other.causes.items():
            self._cause(kind, cause).merge(count)
        self.failures = deque(sorted([*self.failures, *other.failures]), maxlen=MAX_FAILURES)
        for at, theirs in other.seconds.items():
            ours = self.seconds.setdefault(at, Second())
            ours.scheduled += theirs.scheduled
            ours.ok += theirs.ok
            ours.total += theirs.total

    def _cause(self, kind: Kind, cause: str) -> CauseCount:
        known = (kind, cause) in self.causes or len(self.causes) < MAX_CAUSES
        return self.causes.setdefault((kind, cause if known else OTHER), CauseCount())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process. Histograms are encoded."""
        return {
            **self.__dict__,
            **{name: self.__dict__[name].encode() for name in ("first", "total", "delay")},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state from another process."""
        self.__dict__.update(state)
        for name in ("first", "total", "delay"):
            self.__dict__[name] = Latencies(state[name])
