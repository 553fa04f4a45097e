"""The values of each arm and outcome under each condition, for tables and curves over magnitudes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_schedule import cells
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.result import Level

_LEVEL = 0.95


def levels(spec: ExperimentSpec, observations: Observations, arms: Sequence[str]) -> list[Level]:
    """Return one row for each outcome, condition and arm with values. `arms`: names of the arms, or the
    numbers of a sweep's combinations.
    """
    found = []
    for outcome in spec.outcomes:
        for cell in cells(spec):
            for arm in arms:
                series = list(observations.series(cell, arm, outcome.name))
                if not series:
                    continue
                values = [one.value for one in series]
                low, high = _interval(values) or (None, None)
                found.append(
                    Level(
                        arm=arm,
                        outcome=outcome.name,
                        perturbation=cell.perturbation,
                        magnitude=cell.magnitude,
                        blocks=len(values),
                        censored=sum(one.censored for one in series),
                        mean=math.fsum(values) / len(values),
                        median=statistics.median(values),
                        low=low,
                        high=high,
                    )
                )
    return found


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    middle, spread = math.fsum(values) / len(values), statistics.stdev(values)
    reach = float(stats.t.ppf((1 + _LEVEL) / 2, len(values) - 1)) * spread / math.sqrt(len(values))
    return middle - reach, middle + reach
