"""Rows of the bench: paired ratios of an arm and the engine, with intervals and corrected p-values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.spotlight.arms import SPOTLIGHT
from convoy_workloads.experiments.holm import holm
from convoy_workloads.experiments.intervals import ratio_interval
from convoy_workloads.experiments.permutation import sign_flip
from e2e.bench.spotlight.runs import Found

LEVEL = 0.95
RESAMPLES = 10_000
KIND = "simulated"
_SEED = 1


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure in which arms are compared."""

    figure: str
    name: str


TIME = Measure("hoursToTarget", "time to target")
COST = Measure("costToTarget", "cost to target")
ITERATIONS = Measure("iterationsToTarget", "iterations to target")
MEASURES = (TIME, COST, ITERATIONS)
_ABSOLUTE = {
    "hoursToTarget": ("time to target", "h"),
    "costToTarget": ("cost to target", "on-demand hours"),
    "iterationsToTarget": ("iterations to target", "iterations"),
    "rewardAtTime": ("reward at equal time", "reward"),
    "rewardAtSpend": ("reward at equal spend", "reward"),
    "zeroContrastRatio": ("groups without contrast", "ratio"),
    "exploredSeeds": ("explored seeds in an iteration", "seeds"),
    "rankCorrelation": ("rank correlation of stale and fresh rewards", "Spearman"),
    "idleSpotRatio": ("idle share of spot time", "ratio"),
    "lostSpotRatio": ("lost share of spot time", "ratio"),
    "regroupSpotRatio": ("share of spot time in regroups", "ratio"),
}
"""Name and unit of the figures that are shown for each arm."""


def add_figures(found: Figures, arm: str, runs: Sequence[Found]) -> None:
    """Add the figures of an arm. Of a run that did not reach the target, time and cost count as missing."""
    for figure, (name, unit) in _ABSOLUTE.items():
        metric = Metric(f"{arm}: {name}", unit, kind=KIND)
        for one in runs:
            missing = one.censored and figure.endswith("ToTarget")
            found.add(metric, None if missing else one.figures[figure])


def add_ratios(
    found: Figures,
    engine: Sequence[Found],
    others: Mapping[str, Sequence[Found]],
    targets: Mapping[tuple[str, str], float],
    prefix: str = "",
    engine_name: str = SPOTLIGHT,
) -> None:
    """Add the ratios of the arms and the engine: above 1, the engine needs less. The p-values of one measure
    are a family. `targets`: least ratio by figure and arm. `engine_name`: the arm that stands for the engine.
    """
    for measure in MEASURES:
        p_values = [_p_value(measure, engine, runs) for runs in others.values()]
        for (arm, runs), p in zip(others.items(), holm(p_values), strict=True):
            name = f"{prefix}{measure.name}, {arm} / {engine_name}"
            target = targets.get((measure.figure, arm))
            words = f"{interval(measure, engine, runs)}, p {p:.2g} after Holm, {len(runs)} seeds"
            words += _bounds(engine, runs)
            # A run that did not reach the target gives a lower bound only, which must not be the divisor.
            known = not any(one.censored for one in engine)
            metric = Metric(name, "times", target, higher_is_better=True, kind=KIND, spread=words)
            found.add(metric, ratio(measure, engine, runs) if known else None)


def _values(measure: Measure, runs: Sequence[Found]) -> list[float]:
    return [one.figures[measure.figure] for one in runs]


def ratio(measure: Measure, engine: Sequence[Found], others: Sequence[Found]) -> float:
    """Return the ratio of the means over all seeds."""
    return math.fsum(_values(measure, others)) / math.fsum(_values(measure, engine))


def interval(measure: Measure, engine: Sequence[Found], others: Sequence[Found]) -> str:
    """Return the interval of the ratio, as text."""
    pair = ratio_interval(_values(measure, others), _values(measure, engine), LEVEL, RESAMPLES, _SEED)
    return f"{LEVEL:.0%}: {pair[0]:.2f} to {pair[1]:.2f}" if pair else "no interval"


def _p_value(measure: Measure, engine: Sequence[Found], others: Sequence[Found]) -> float:
    """Return the p-value of the paired differences of the logarithms."""
    pairs = zip(_values(measure, others), _values(measure, engine), strict=True)
    differences = [math.log(one / other) for one, other in pairs]
    return float(sign_flip(differences, "two-sided", RESAMPLES, _SEED))


def _bounds(engine: Sequence[Found], others: Sequence[Found]) -> str:
    """Return the number of runs that did not reach the target. Their values are lower bounds."""
    ours, theirs = sum(one.censored for one in engine), sum(one.censored for one in others)
    if not ours and not theirs:
        return ""
    bound = "" if ours else ", so the ratio is a lower bound"
    return f"; not reached: {theirs} of the arm, {ours} of the engine{bound}"
