"""Runs of several arms with the same seeds, and the gain of one arm over another."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from convoy_workloads.experiments.intervals import attained_level, mean_interval
from convoy_workloads.experiments.permutation import sign_flip

LEVEL = 0.95
RESAMPLES = 10_000
Results = Mapping[str, Mapping[str, Sequence[float]]]
"""Values by arm and name of the figure, one for each seed."""


def run_paired(arms: Mapping[str, Callable[[int], Mapping[str, float]]], seeds: Sequence[int]) -> Results:
    """Run each arm with each seed. Seed by seed, each time beginning with another arm.

    Raises ValueError if two arms give different figures.
    """
    names = list(arms)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for number, seed in enumerate(seeds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            for figure, value in arms[name](seed).items():
                found[name].setdefault(figure, []).append(value)
    if len({frozenset(one) for one in found.values()}) > 1:
        raise ValueError(f"the arms {', '.join(names)} do not give the same figures")
    return found


@dataclass(frozen=True)
class Gain:
    """The mean paired difference between two arms."""

    mean: float
    low: float
    high: float
    level: float
    """Level of the interval. With few seeds it is below the wanted one."""
    p_value: float
    """One-sided p-value of the mean being 0 or less."""

    def __str__(self) -> str:
        return f"{self.level:.0%}: {self.low:.4f} to {self.high:.4f}, p = {self.p_value:.3g}"


def paired_gain(ours: Sequence[float], theirs: Sequence[float], level: float = LEVEL) -> Gain:
    """Return the gain of one arm over another. Raises ValueError for fewer than two seeds."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    interval = mean_interval(differences, level, RESAMPLES, seed=0)
    if interval is None:
        raise ValueError("a gain needs at least two seeds")
    p_value = float(sign_flip(differences, "greater", RESAMPLES, seed=0))
    return Gain(statistics.fmean(differences), *interval, attained_level(len(differences), level), p_value)
