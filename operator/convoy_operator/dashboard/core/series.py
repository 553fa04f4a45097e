"""Curves of jobs: what `status.progress` said over time, kept in bounded memory.

The API server keeps only the newest value, so a curve begins when the dashboard began to watch.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import nan

from convoy_crds.trainingjob_status import Progress

POINTS = 600
"""Of one curve. When it is full every other one goes, so that it always reaches back to its beginning."""
JOBS = 2000
"""With a curve; the one that was quiet longest makes room."""


@dataclass(slots=True)
class Curve:
    """One job's progress."""

    since: datetime
    """When watching began, or what was told by then, where that is older."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Unix seconds, as the job told; when it was seen, where that is ahead of now or behind what was told
    before. They never go back."""
    steps: array[float] = field(default_factory=lambda: array("d"))
    losses: array[float] = field(default_factory=lambda: array("d"))
    """NaN where none was told."""
    rates: array[float] = field(default_factory=lambda: array("d"))
    """Samples per second; NaN where none was told."""
    stride: int = 1
    """Of so many points one is kept."""
    skipped: int = 0
    _told: tuple[datetime | None, int] | None = None
    """Time and step that were told last."""

    def add(self, progress: Progress, now: datetime) -> bool:
        """Takes what was told, unless it is what was told last; whether it was news."""
        told = progress.time, progress.step
        if told == self._told:
            return False
        self._told = told
        at = self._when(progress.time, now)
        if not self.times:
            self.since = min(self.since, datetime.fromtimestamp(at, UTC))
        if self.times and self.skipped + 1 < self.stride:
            # The newest is always there, and is replaced until it is the stride's turn.
            self.skipped += 1
            self._drop_last()
        else:
            self.skipped = 0
        self.times.append(at)
        self.steps.append(float(progress.step))
        self.losses.append(progress.loss if progress.loss is not None else nan)
        self.rates.append(progress.samples_per_second if progress.samples_per_second is not None else nan)
        if len(self.times) > POINTS:
            self._thin()
        return True

    def _when(self, told: datetime | None, now: datetime) -> float:
        last, seen = self.times[-1] if self.times else float("-inf"), now.timestamp()
        # Clocks of nodes differ: one that is ahead must not keep what others tell from being shown.
        if told is not None and last < told.timestamp() <= seen:
            return told.timestamp()
        return max(last, seen)

    def _drop_last(self) -> None:
        if len(self.times) > 1:
            for part in (self.times, self.steps, self.losses, self.rates):
                part.pop()

    def _thin(self) -> None:
        last = len(self.times) - 1
        for part in (self.times, self.steps, self.losses, self.rates):
            # By place and not by value: a loss that was not told equals nothing, itself included.
            part[:] = array(
                "d", (value for place, value in enumerate(part) if place % 2 == 0 or place == last)
            )
        self.stride *= 2
        self.skipped = 0


class Curves:
    """Those of all jobs, by uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, Curve] = OrderedDict()

    def see(self, uid: str, progress: Progress | None, now: datetime) -> bool:
        """Takes a job's progress; whether it was news."""
        curve = self._known.get(uid)
        if curve is None:
            curve = self._known[uid] = Curve(now)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        if progress is None or not curve.add(progress, now):
            return False
        self._known.move_to_end(uid)
        return True

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> Curve | None:
        """The curve of a job."""
        return self._known.get(uid)

    def __len__(self) -> int:
        return len(self._known)
