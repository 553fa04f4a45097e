"""The load of single pods in the terms of an autoscaler's metrics, computed from their reported totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convoy_controllers.servingjob.traffic import (
    FEWEST_SECONDS,
    STALE_SECONDS,
    Latencies,
    Series,
    Totals,
    difference,
    last_request,
    quantile,
)
from convoy_crds.servingjob_scaling import ScalingMetric


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one pod. A figure is None if it is not known yet."""

    age_seconds: float
    """Seconds since the newest report."""
    window_seconds: float
    """Seconds that rates and percentiles cover."""
    waiting: int
    running: int
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    p95: float | None = None
    """95th percentile of the duration of requests, in seconds. 0 if there were no requests."""
    first_token_p95: float | None = None
    """95th percentile of the time to the first token, in seconds. 0 if there were no requests."""
    cores: float | None = None
    """Processor seconds per second; None also for a program that does not report its processor time."""
    quiet_seconds: float | None = None
    """Seconds since the pod last had a request; 0 if it has one now; None if it had none in the window."""


METRICS: Mapping[ScalingMetric, Callable[[Load], float | None]] = {
    ScalingMetric.WAITING: lambda load: load.waiting,
    ScalingMetric.RUNNING: lambda load: load.running,
    ScalingMetric.REQUESTS: lambda load: load.requests_per_second,
    ScalingMetric.TOKENS: lambda load: load.tokens_per_second,
    ScalingMetric.LATENCY: lambda load: load.p95,
    ScalingMetric.FIRST_TOKEN: lambda load: load.first_token_p95,
}
"""The figure of each metric."""


def load(series: Series, now: float) -> Load | None:
    """Return the load of a pod at `now`, a time of the series' clock; None without a report since
    `STALE_SECONDS`.
    """
    if not series or now - series[-1].at > STALE_SECONDS:
        return None
    newest, oldest = series[-1], series[0]
    seconds = newest.at - oldest.at

    def rate(read: Callable[[Totals], float]) -> float | None:
        return (read(newest.totals) - read(oldest.totals)) / seconds if seconds >= FEWEST_SECONDS else None

    idle = not (newest.totals.queue or newest.totals.in_flight)

    def p95(read: Callable[[Totals], Latencies]) -> float | None:
        found = quantile([difference(read(newest.totals), read(oldest.totals))])
        # Without an ended request, the latency is 0 only if none is in flight: such a request may be slow.
        return 0.0 if found is None and idle and seconds >= FEWEST_SECONDS else found

    last = last_request(series)
    quiet = None if last is None else now - last if idle else 0.0
    return Load(
        age_seconds=now - newest.at,
        window_seconds=seconds,
        waiting=newest.totals.queue,
        running=newest.totals.in_flight,
        requests_per_second=rate(lambda totals: totals.requests),
        tokens_per_second=rate(lambda totals: totals.tokens),
        p95=p95(lambda totals: totals.latency),
        first_token_p95=p95(lambda totals: totals.first_token),
        cores=rate(lambda totals: totals.cpu_seconds) if newest.totals.cpu_seconds else None,
        quiet_seconds=quiet,
    )
