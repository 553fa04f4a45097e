"""The curves of jobs: values of `status.progress` over time, in bounded memory.

The API server keeps only the newest progress. So a curve begins when the dashboard starts to watch the job.
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
"""Maximum number of points of a job's curve. A full curve drops every other point, so the whole time stays
visible.
"""
METRIC_POINTS = 200
"""Maximum number of points in a metric's curve."""
METRICS = 8
"""Maximum number of metrics per job that have a curve. The first metrics in the status are used."""
JOBS = 2000
"""Maximum number of jobs with a curve. If there are more, the curve that has gone longest without a new
value is dropped.
"""


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class MetricCurve:
    """The curve of one metric of a job over the steps at which its ranks reported it."""

    steps: array[float] = field(default_factory=_numbers)
    values: array[float] = field(default_factory=_numbers)
    """The reported values. A value that is not a finite number is NaN."""
    _rows: Downsampled = field(init=False)

    def __post_init__(self) -> None:
        self._rows = Downsampled((self.steps, self.values), METRIC_POINTS)

    def add(self, metric: Metric) -> bool:
        """Record a value. Return False if the last recorded value has the same step."""
        step, value = float(metric.step), metric.value if metric.value is not None else nan
        if self.steps and self.steps[-1] == step:
            return False
        self._rows.append(step, value)
        return True


@dataclass(slots=True)
class Curve:
    """The reported steps, losses, rates and metrics of one job over time."""

    since: datetime
    """Time when the dashboard started to watch the job, or time of the first report if that is earlier."""
    times: array[float] = field(default_factory=_numbers)
    """Unix times of the reports in seconds, never decreasing.

    A time is the one in the report, or the time of receipt. The time of receipt is used if the reported
    time is in the future or not after the previous time.
    """
    steps: array[float] = field(default_factory=_numbers)
    losses: array[float] = field(default_factory=_numbers)
    """The reported losses. A report without a loss is NaN."""
    rates: array[float] = field(default_factory=_numbers)
    """The reported throughput in samples per second. A report without throughput is NaN."""
    metrics: dict[str, MetricCurve] = field(default_factory=dict)
    """The curve of each metric by name, in the order of the status."""
    _rows: Downsampled = field(init=False)
    _last_report: tuple[datetime | None, int] | None = None
    """Reported time and step of the newest report."""

    def __post_init__(self) -> None:
        self._rows = Downsampled((self.times, self.steps, self.losses, self.rates), POINTS)

    @property
    def stride(self) -> int:
        """Return the number of reports for each kept point of the curve."""
        return self._rows.stride

    def add(self, progress: Progress, now: datetime) -> bool:
        """Record a report. Return False if it contains nothing new."""
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
        # Use the reported time only if it is plausible. Nodes' clocks differ, and a clock that is ahead must
        # not make later reports look older.
        if reported is not None and last < reported.timestamp() <= received:
            return reported.timestamp()
        return max(last, received)


class Curves:
    """The curves of all jobs, by the job's uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, Curve] = OrderedDict()

    def record(self, uid: str, progress: Progress | None, now: datetime) -> bool:
        """Record a job's progress. Return False if it contains nothing new."""
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
        """Remove the curve of a deleted job."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> Curve | None:
        """Return the curve of a job."""
        return self._known.get(uid)

    def __len__(self) -> int:
        return len(self._known)
