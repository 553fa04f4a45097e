"""Rules for the amount that is reserved for a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from convoy_workloads.simulators.allocation.telemetry import Telemetry
from convoy_workloads.simulators.allocation.workload import Amount, Job

LEAST_SAMPLES = 4
"""Number of measurements of a class below which a rule reserves the request."""
BUCKET_GROWTH = 1.05
"""Ratio of neighbouring buckets in the histograms of the VerticalPodAutoscaler."""
RETRY_FACTOR = 1.2
"""Factor of the memory after a job ran out of it, as in the VerticalPodAutoscaler."""


class Sizing(Protocol):
    """A rule that decides how much a new job reserves."""

    def reserve(self, job: Job, telemetry: Telemetry, now: float) -> Amount:
        """Return the amount to reserve for a job that has not run before."""


@dataclass(frozen=True, slots=True)
class Requested:
    """The owner's request."""

    def reserve(self, job: Job, telemetry: Telemetry, now: float) -> Amount:
        """Return the request."""
        return job.request


@dataclass(frozen=True, slots=True)
class Exact:
    """The amount that the job will use. It knows the future, so no real rule reaches it."""

    def reserve(self, job: Job, telemetry: Telemetry, now: float) -> Amount:
        """Return the use."""
        return job.used


@dataclass(frozen=True, slots=True)
class DecayingHistogram:
    """A percentile of a histogram in which old measurements weigh less, as in the VerticalPodAutoscaler."""

    percentile: float
    margin: float
    half_life_seconds: float
    _known: dict[tuple[int, int], Amount] = field(default_factory=dict, compare=False)
    """Results by class and number of measurements. The weights of all measurements fall by the same factor
    as time passes, so a result does not depend on the time.
    """

    def reserve(self, job: Job, telemetry: Telemetry, now: float) -> Amount:
        """Return the percentile of the class plus the margin."""
        count = telemetry.count(now, job.kind)
        if count < LEAST_SAMPLES:
            return job.request
        if (job.kind, count) not in self._known:
            self._known[job.kind, count] = self._from(*telemetry.oldest(job.kind, count))
        return self._known[job.kind, count]

    def _from(self, times: Sequence[float], used: Sequence[Amount]) -> Amount:
        weights = [2 ** ((time - times[-1]) / self.half_life_seconds) for time in times]
        cores = self._percentile([one.cores for one in used], weights)
        memory = self._percentile([one.memory for one in used], weights)
        return Amount(cores, memory).times(1 + self.margin)

    def _percentile(self, values: Sequence[float], weights: Sequence[float]) -> float:
        """Return the upper end of the bucket that holds the percentile."""
        ordered = sorted(zip(values, weights, strict=True))
        left = self.percentile / 100 * math.fsum(weights)
        value = ordered[-1][0]
        for value, weight in ordered:  # noqa: B007 - the last value counts
            left -= weight
            if left <= 0:
                break
        return float(BUCKET_GROWTH ** math.ceil(math.log(value) / math.log(BUCKET_GROWTH)))


@dataclass(frozen=True, slots=True)
class MovingWindow:
    """The largest of the newest measurements, as in the rule of Autopilot for memory."""

    samples: int
    margin: float

    def reserve(self, job: Job, telemetry: Telemetry, now: float) -> Amount:
        """Return the largest use of the class in the window plus the margin."""
        count = telemetry.count(now, job.kind)
        if count < LEAST_SAMPLES:
            return job.request
        seen = telemetry.oldest(job.kind, count)[1][-self.samples :]
        largest = Amount(max(one.cores for one in seen), max(one.memory for one in seen))
        return largest.times(1 + self.margin)
