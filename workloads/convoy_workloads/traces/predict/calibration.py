"""Calibration: latency and bandwidth of the links under load, from the communications of recorded traces.

An idle link is faster than one beside a busy step, and transfers that overlap share it. So the fit takes the
recorded arrivals of all ranks, simulates the shared links, and compares the ends with the recorded ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from convoy_workloads.traces.intervals import union_length
from convoy_workloads.traces.predict.job import Job, Transfer
from convoy_workloads.traces.predict.links import Links, ends
from convoy_workloads.traces.predict.sharing import Sharing

MAX_TRANSFERS = 300
"""Transfers that the fit uses: the first ones. Each trial simulates all of them."""
_TRIALS = 24
"""Trials in the search for the best bandwidth of one latency."""
_FACTOR = 64.0
"""The bandwidth is searched within this factor of the mean one."""
_LATENCIES = 6
_SMALL = 0.1
"""Bytes of a small communication, as a share of those of the largest. Its time is mostly latency."""
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted links, and how well they agree with the recorded communications."""

    links: Links
    transfers: int
    """Communications with bytes that the fit has used."""
    sizes: int
    """Different numbers of bytes among them."""
    error: float
    """Sum of the differences between computed and recorded times, as a share of the recorded times."""


def calibrate(job: Job, sharing: Sharing = Sharing.FAIR) -> Calibration | None:
    """Return the links that fit the communications best; None if there is no communication with bytes.

    The fit minimises the sum of absolute differences, so single outliers count little. Small communications
    determine the latency. Without any, latency and bandwidth cannot be told apart: then the latency is 0, and
    the bandwidth holds all of the time.
    """
    used = [one for one in job.transfers if one.bytes > 0 and len(one.members) > 1][:MAX_TRANSFERS]
    recorded = {one: (job.arrival(one), max(map(job.end, one.members))) for one in used}
    durations = {one: end - arrival for one, (arrival, end) in recorded.items() if end > arrival}
    if not durations:
        return None
    arrivals = [(recorded[one][0], one) for one in durations]
    total = sum(durations.values())

    def difference(links: Links) -> float:
        found = ends(arrivals, links)
        return sum(abs(found[one] - recorded[one][1]) for one in durations) / total

    mean = sum(one.bytes for one in durations) / union_length(recorded[one] for one in durations)
    best = min(
        (_best_bandwidth(difference, latency, mean, sharing) for latency in _latencies(durations)),
        key=lambda one: (one[0], one[1].latency_us),
    )
    return Calibration(best[1], len(durations), len({one.bytes for one in durations}), best[0])


def _latencies(durations: dict[Transfer, float]) -> list[float]:
    """Return latencies to try: none, and with small communications also parts of the shortest times of a
    message.
    """
    sizes = [one.bytes for one in durations]
    if min(sizes) > _SMALL * max(sizes):
        return [0.0]
    messages = sorted(time / max(one.steps, 1) for one, time in durations.items())
    shortest = statistics.median(messages[: max(1, len(messages) // 10)])
    return [0.0, *(shortest * 2.0**-power for power in range(_LATENCIES))]


def _best_bandwidth(
    difference: Callable[[Links], float], latency: float, mean: float, sharing: Sharing
) -> tuple[float, Links]:
    """Return the smallest difference with this latency, and its links: a search by the golden section."""

    def at(place: float) -> tuple[float, Links]:
        links = Links(latency, mean * _FACTOR**place, sharing)
        return difference(links), links

    low, high = -1.0, 1.0
    one, two = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_one, at_two = at(one), at(two)
    for _ in range(_TRIALS):
        if at_one[0] <= at_two[0]:
            high, two, at_two = two, one, at_one
            one = high - _GOLDEN * (high - low)
            at_one = at(one)
        else:
            low, one, at_one = one, two, at_two
            two = low + _GOLDEN * (high - low)
            at_two = at(two)
    return min(at_one, at_two, key=lambda found: found[0])
