"""The curves of ServingJobs: values of `status.traffic` over time, in bounded memory.

The API server keeps only the newest values. So a curve begins when the dashboard starts to watch the job.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from math import nan

from convoy_crds.servingjob_status import Traffic
from convoy_operator.dashboard.core.downsampling import Downsampled

POINTS = 600
"""Maximum number of points of a curve. A full curve drops every other point, so the whole time stays visible.
"""
JOBS = 1000
"""Maximum number of jobs with a curve. If there are more, the curve that has gone longest without a new value
is dropped.
"""


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class TrafficCurve:
    """The latencies, the rate and the queue of one job over time. An absent value is NaN."""

    since: datetime
    """Time when the dashboard started to watch the job."""
    times: array[float] = field(default_factory=_numbers)
    """Unix seconds at which the status changed."""
    p95: array[float] = field(default_factory=_numbers)
    ttft: array[float] = field(default_factory=_numbers)
    rate: array[float] = field(default_factory=_numbers)
    queue: array[float] = field(default_factory=_numbers)
    in_flight: array[float] = field(default_factory=_numbers)
    _rows: Downsampled = field(init=False)
    _last: Traffic | None = None

    def __post_init__(self) -> None:
        columns = (self.times, self.p95, self.ttft, self.rate, self.queue, self.in_flight)
        self._rows = Downsampled(columns, POINTS)

    def add(self, traffic: Traffic | None, now: datetime) -> bool:
        """Record the traffic of a status. Return False if it is unchanged."""
        if traffic == self._last:
            return False
        self._last = traffic
        shown = traffic or Traffic()
        values = (shown.p95_ms, shown.ttft_ms, shown.requests_per_second, shown.queue, shown.in_flight)
        self._rows.append(now.timestamp(), *(nan if one is None else float(one) for one in values))
        return True


class TrafficCurves:
    """The curves of all ServingJobs, by the job's uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, TrafficCurve] = OrderedDict()

    def record(self, uid: str, traffic: Traffic | None, now: datetime) -> None:
        """Record a job's traffic."""
        curve = self._known.get(uid)
        if curve is None:
            curve = self._known[uid] = TrafficCurve(now)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        if curve.add(traffic, now):
            self._known.move_to_end(uid)

    def remove(self, uid: str) -> None:
        """Remove the curve of a deleted job."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> TrafficCurve | None:
        """Return the curve of a job."""
        return self._known.get(uid)

    def __len__(self) -> int:
        return len(self._known)
