"""The requests of a ServingJob's replicas: totals of each pod over time, and the job's figures made of them.

Each pod reports totals that only grow. Two samples of the totals give a rate, and the difference of their
histograms gives percentiles of the requests between them. The figures of a job cover the last
`WINDOW_SECONDS`. All times are seconds of one clock.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from convoy_crds.servingjob_status import Traffic

WINDOW_SECONDS = 60.0
"""Seconds over which rates and percentiles are computed."""
SPACING_SECONDS = 10.0
"""Minimum seconds between two stored samples of a pod. The newest sample is stored in any case."""
STALE_SECONDS = 15.0
"""Seconds after which the totals of a pod no longer count. Agents repeat them every 5 s."""
FEWEST_SECONDS = 5.0
"""Minimum seconds between two samples that give a rate."""
STEADY = 0.1
"""Relative change below which a figure in the status stays as it is, so that jitter costs no write."""
QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Latencies:
    """A histogram of latencies in seconds."""

    bounds: tuple[float, ...] = ()
    """Upper bounds, ascending."""
    counts: Sequence[int] = ()
    """Number of latencies up to each bound and above the previous one. The last number counts all longer
    latencies.
    """


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one pod since its rank started, and its present requests."""

    incarnation: int
    queue: int = 0
    in_flight: int = 0
    requests: int = 0
    errors: int = 0
    refused: int = 0
    tokens: int = 0
    compute_seconds: float = 0.0
    cpu_seconds: float = 0.0
    latency: Latencies = Latencies()
    first_token: Latencies = Latencies()

    def follows(self, before: Totals) -> bool:
        """Return True if the totals continue those of `before`. They do not if the rank has restarted."""
        return (
            self.incarnation == before.incarnation
            and self.requests >= before.requests
            and self.tokens >= before.tokens
            and self.refused >= before.refused
            and self.latency.bounds == before.latency.bounds
            and self.first_token.bounds == before.first_token.bounds
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals of a pod at one time."""

    at: float
    totals: Totals


Series = tuple[Sample, ...]
"""The samples of one pod, the oldest first."""


def record(series: Series, totals: Totals, now: float) -> Series:
    """Return the series with new totals. Samples that the window no longer needs are left out."""
    if series and not totals.follows(series[-1].totals):
        series = ()
    kept = list(series)
    if len(kept) >= 2 and kept[-1].at - kept[-2].at < SPACING_SECONDS:
        kept.pop()
    kept.append(Sample(now, totals))
    while len(kept) >= 2 and kept[1].at <= now - WINDOW_SECONDS:
        kept.pop(0)
    return tuple(kept)


def busy(series: Series) -> bool:
    """Return True if the pod has requests, or had some within the window."""
    newest, oldest = series[-1].totals, series[0].totals
    return bool(newest.queue or newest.in_flight) or _handled(newest) != _handled(oldest)


def last_request(series: Series) -> float | None:
    """Return the time of the newest sample with requests, or after some had ended; None if there is none."""
    if series and _open(series[-1]):
        return series[-1].at
    for newer, older in pairwise(reversed(series)):
        if _handled(newer.totals) != _handled(older.totals):
            return newer.at
        if _open(older):
            return older.at
    return None


def _open(sample: Sample) -> int:
    return sample.totals.queue + sample.totals.in_flight


def _handled(totals: Totals) -> tuple[int, int]:
    return totals.requests, totals.refused


@dataclass(frozen=True, slots=True)
class SlowReplica:
    """A replica that needs more compute time per token than its peers at like load."""

    pod: str
    """Uid of its pod in slot 0."""
    slowdown: float
    """Extra time as a share: 0.1 is 10 %."""
    proven: bool
    """True if at least three peers do the same work."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a job's replicas together, over the window. Times are in seconds."""

    p95: float | None = None
    """95th percentile of the duration of requests; None without a request."""
    ttft: float | None = None
    """95th percentile of the time to the first token; None without a request."""
    requests_per_second: float | None = None
    """None before two samples are `FEWEST_SECONDS` apart."""
    errors_per_second: float = 0.0
    refused_per_second: float = 0.0
    tokens_per_second: float = 0.0
    queue: int = 0
    in_flight: int = 0
    slow: tuple[SlowReplica, ...] = ()
    """Replicas that are slow against their peers (slowness.py)."""


def figures(several: Iterable[Series], now: float) -> Figures | None:
    """Return the figures of several pods; None if no pod reports its requests."""
    fresh = [one for one in several if one and now - one[-1].at <= STALE_SECONDS]
    if not fresh:
        return None
    spans = [(one, now - one[0].at) for one in fresh if one[-1].at - one[0].at >= FEWEST_SECONDS]

    def rate(read: Callable[[Totals], int]) -> float:
        return sum((read(one[-1].totals) - read(one[0].totals)) / seconds for one, seconds in spans)

    return Figures(
        p95=quantile([difference(one[-1].totals.latency, one[0].totals.latency) for one in fresh]),
        ttft=quantile([difference(one[-1].totals.first_token, one[0].totals.first_token) for one in fresh]),
        requests_per_second=rate(lambda totals: totals.requests) if spans else None,
        errors_per_second=rate(lambda totals: totals.errors),
        refused_per_second=rate(lambda totals: totals.refused),
        tokens_per_second=rate(lambda totals: totals.tokens),
        queue=sum(one[-1].totals.queue for one in fresh),
        in_flight=sum(one[-1].totals.in_flight for one in fresh),
    )


def difference(after: Latencies, before: Latencies) -> Latencies:
    """Return the latencies that were added between two samples of the same series."""
    pairs = zip(after.counts, before.counts, strict=True)
    return Latencies(after.bounds, array("Q", (max(0, one - other) for one, other in pairs)))


def quantile(several: Iterable[Latencies], share: float = QUANTILE) -> float | None:
    """Return the latency below which this share of all latencies lies, interpolated within its bucket; None
    without any latency. Above the highest bound it is that bound.
    """
    counts: dict[float, int] = defaultdict(int)
    above = 0
    for one in several:
        for bound, count in zip(one.bounds, one.counts, strict=False):
            counts[bound] += count
        above += one.counts[-1] if one.counts else 0
    wanted = share * (sum(counts.values()) + above)
    if not wanted or not counts:
        return None
    low, seen = 0.0, 0
    for bound in sorted(counts):
        if seen + counts[bound] >= wanted:
            return low + (bound - low) * (wanted - seen) / counts[bound]
        low, seen = bound, seen + counts[bound]
    return low


def shown(found: Figures, stored: Traffic | None) -> Traffic:
    """Return the figures for the status: rounded, and unchanged where they are close to the stored ones."""
    before = stored or Traffic()
    known = found.requests_per_second is not None
    return Traffic(
        p95_ms=_steady(_milliseconds(found.p95), before.p95_ms),
        ttft_ms=_steady(_milliseconds(found.ttft), before.ttft_ms),
        requests_per_second=_steady(found.requests_per_second, before.requests_per_second),
        errors_per_second=_steady(found.errors_per_second, before.errors_per_second) if known else None,
        refused_per_second=_steady(found.refused_per_second, before.refused_per_second) if known else None,
        tokens_per_second=_steady(found.tokens_per_second, before.tokens_per_second) if known else None,
        queue=_steady_count(found.queue, before.queue),
        in_flight=_steady_count(found.in_flight, before.in_flight),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _steady(value: float | None, stored: float | None) -> float | None:
    """Return the value with two significant digits, or the stored one if it is about the same."""
    if value is None:
        return None
    if value and stored and abs(value - stored) <= STEADY * stored:
        return stored
    return float(f"{value:.2g}")


def _steady_count(value: int, stored: int | None) -> int:
    """Return the number, or the stored one if it is about the same. 0 and 1 are always exact."""
    if stored is None or min(value, stored) <= 1 or abs(value - stored) > STEADY * stored:
        return value
    return stored
