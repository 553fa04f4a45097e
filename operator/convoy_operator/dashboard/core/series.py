"""Curves of jobs: what `status.progress` said over time, kept in bounded memory.

The API server keeps only the newest value, so a curve begins when the dashboard began to watch.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import nan

from convoy_crds.trainingjob_status import Metric, Progress
from convoy_operator.dashboard.core.downsampling import Downsampled

POINTS = 600
"""Of one curve. When it is full every other one goes, so that it always reaches back to its beginning."""
METRIC_POINTS = 200
"""Points of the curve of one metric."""
METRICS = 8
"""Metrics of one job with a curve: the first that its status has."""
JOBS = 2000
"""With a curve; the one that was quiet longest makes room."""


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class MetricCurve:
    """One metric of a job over the steps at which its ranks reported it."""

    steps: array[float] = field(default_factory=_numbers)
    values: array[float] = field(default_factory=_numbers)
    """NaN where the value was no finite number."""
    _rows: Downsampled = field(init=False)

    def __post_init__(self) -> None:
        self._rows = Downsampled((self.steps, self.values), METRIC_POINTS)

    def add(self, metric: Metric) -> bool:
        """Record a value. Return False for the one that was recorded last."""
        step, value = float(metric.step), metric.value if metric.value is not None else nan
        if self.steps and self.steps[-1] == step:
            return False
        self._rows.append(step, value)
        return True


@dataclass(slots=True)
class Curve:
    """One job's progress."""

    since: datetime
    """When watching began, or what was told by then, where that is older."""
    times: array[float] = field(default_factory=_numbers)
    """Unix seconds, as the job told; when it was seen, where that is ahead of now or behind what was told
    before. They never go back."""
    steps: array[float] = field(default_factory=_numbers)
    losses: array[float] = field(default_factory=_numbers)
    """NaN where none was told."""
    rates: array[float] = field(default_factory=_numbers)
    """Samples per second; NaN where none was told."""
    metrics: dict[str, MetricCurve] = field(default_factory=dict)
    """By name, in the order of the status."""
    _rows: Downsampled = field(init=False)
    _last_report: tuple[datetime | None, int] | None = None
    """Time and step that were told last."""

    def __post_init__(self) -> None:
        self._rows = Downsampled((self.times, self.steps, self.losses, self.rates), POINTS)

    @property
    def stride(self) -> int:
        """Of so many points one is kept."""
        return self._rows.stride

    def add(self, progress: Progress, now: datetime) -> bool:
        """Takes what was told, unless it is what was told last; whether it was news."""
        measured = self._add_metrics(progress.metrics)
        reported = progress.time, progress.step
        if reported == self._last_report:
            return measured
        self._last_report = reported
        at = self._timestamp(progress.time, now)
        if not self.times:
            self.since = min(self.since, datetime.fromtimestamp(at, UTC))
        loss, rate = progress.loss, progress.samples_per_second
        self._rows.append(
            at, float(progress.step), loss if loss is not None else nan, rate if rate is not None else nan
        )
        return True

    def _add_metrics(self, metrics: Iterable[Metric]) -> bool:
        changed = False
        for one in metrics:
            curve = self.metrics.get(one.name)
            if curve is None:
                if len(self.metrics) >= METRICS:
                    continue
                curve = self.metrics[one.name] = MetricCurve()
            changed = curve.add(one) or changed
        return changed

    def _timestamp(self, reported: datetime | None, now: datetime) -> float:
        last, received = self.times[-1] if self.times else float("-inf"), now.timestamp()
        # Clocks of nodes differ: one that is ahead must not keep what others tell from being shown.
        if reported is not None and last < reported.timestamp() <= received:
            return reported.timestamp()
        return max(last, received)


class Curves:
    """Those of all jobs, by uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, Curve] = OrderedDict()

    def record(self, uid: str, progress: Progress | None, now: datetime) -> bool:
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

    def remove(self, uid: str) -> None:
        """The job is gone."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> Curve | None:
        """The curve of a job."""
        return self._known.get(uid)

    def __len__(self) -> int:
        return len(self._known)
