"""The figures of simulated replicas, as their agents report them to the operator."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from convoy_controllers.servingjob.traffic import Latencies, Totals

REPORT_SECONDS = 5.0
"""Seconds between two reports of a replica's totals."""
_BOUNDS = tuple(0.001 * 1.25**power for power in range(52))


@dataclass(slots=True)
class ReplicaTotals:
    """The totals of one replica since its ranks started."""

    done: int = 0
    shed: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))

    def record(self, seconds: float) -> None:
        """Record a request that ended well."""
        self.done += 1
        self.counts[bisect_left(_BOUNDS, seconds)] += 1

    def report(self, incarnation: int, queue: int, in_flight: int) -> Totals:
        """Return the totals in the form of the operator's hub."""
        return Totals(
            incarnation=incarnation,
            queue=queue,
            in_flight=in_flight,
            requests=self.done,
            refused=self.shed,
            latency=Latencies(_BOUNDS, tuple(self.counts)),
            first_token=Latencies(),
        )
