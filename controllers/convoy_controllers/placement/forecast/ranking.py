"""Ranks candidates by their predicted steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convoy_controllers.placement.forecast.case import Case
from convoy_crds.placement import RankedPlace

SAME = 0.01
"""Share of a step below which a faster place is no reason to leave the place that packing chooses."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a simulation."""

    step_ms: float = 0.0
    """Predicted milliseconds of a step."""
    bottleneck: str = ""
    """The busiest link; empty if nothing is sent."""
    failure: str = ""
    """Reason why there is no prediction; empty if there is one."""


Forecasts = Mapping[Case, Forecast]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates with a prediction, and what is missing."""

    places: tuple[RankedPlace, ...] = ()
    """The fastest first."""
    best: int | None = None
    """Index of the candidate to prefer; None unless every case has a result, and one has a prediction."""
    missing: tuple[Case, ...] = ()
    """Cases that have not been simulated."""
    failure: str = ""
    """Reason why the first candidate has no prediction; empty if it has one."""


def rank(names: Sequence[str], cases: Sequence[Case], forecasts: Forecasts) -> Ranking:
    """Rank candidates by name. The first one is the place that packing chooses: another one must be faster
    by more than SAME.
    """
    missing = tuple(dict.fromkeys(case for case in cases if case not in forecasts))
    if missing or not cases:
        return Ranking(missing=missing)
    found = [forecasts[case] for case in cases]
    times = {index: one.step_ms for index, one in enumerate(found) if not one.failure}
    if not times:
        return Ranking(failure=found[0].failure)
    best = min(times, key=lambda index: (times[index], index))
    if 0 in times and times[best] >= times[0] * (1 - SAME):
        best = 0
    places = tuple(
        RankedPlace(name=names[index], step_ms=round(time, 3), bottleneck=found[index].bottleneck)
        for index, time in sorted(times.items(), key=lambda one: one[1])
    )
    return Ranking(places, best, failure=found[0].failure)
