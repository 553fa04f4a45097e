"""Compares an engine with its baselines: by ratios within each round, by values that must be equal, and by
a negative control.

Every arm runs once in each round. Each round starts with another arm, so that no arm always runs first. A
ratio compares two runs of the same round, so it changes little if the machine becomes slower over the
hours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from convoy_workloads.bench.arms import Arm, Arms
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial, run

LEVEL = 0.95
Label = Literal["measured", "calibrated simulation", "paper claim"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity, such as tokens per second, that is measured in every run of every arm."""

    name: str
    """Name of the quantity in the bench's rows, such as `tokens per second`."""
    unit: str
    value_of: Callable[[Trial], float]
    higher_is_better: bool = False
    target: float | None = None
    """Minimum ratio by which the engine must be better than its first baseline. The engine is better if the
    ratio is above 1.
    """


@dataclass(frozen=True, kw_only=True)
class Equality:
    """A value that must be equal in all runs of the engine and of its baselines."""

    key: str
    """Key of the value in a run's result."""
    name: str
    tolerance: float = 0.0
    """Maximum difference of numbers that count as equal. Texts must be identical."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The definition of an engine's bench: its arms, its measures, and the values that must be equal."""

    sizes: Mapping[Literal["small", "full"], Mapping[str, Any]]
    """The argument of `arms` and `measures` for each size. A run of size `small` ends within seconds. Size
    `full` gives the published figures.
    """
    arms: Callable[[Mapping[str, Any]], Arms]
    measures: Callable[[Mapping[str, Any]], Sequence[Measure]]
    equal: Sequence[Equality]
    rounds: int = 7
    label: Label = "measured"
    control_tolerance: float = 0.1
    """Maximum gain or loss of the control over the first baseline in the first measure: the ratio minus 1.
    For size `small` it is reported but not checked.
    """


@dataclass(frozen=True)
class Ratio:
    """Ratio by which one arm is better than another: the median over the rounds, with its confidence
    interval.
    """

    median: float
    low: float
    high: float
    level: float
    """Level of the interval. With few rounds it is below LEVEL: no interval is wider than the range."""

    def __str__(self) -> str:
        return f"{self.level:.0%}: {self.low:.3f} to {self.high:.3f}"


def alternate(
    arms: Sequence[Arm], rounds: int, run_once: Callable[[Arm], Trial] = run
) -> dict[str, list[Trial]]:
    """Run every arm once in each round. Each round starts with another arm. Return the trials by name of
    the arm.
    """
    trials: dict[str, list[Trial]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            trials[arm.name].append(run_once(arm))
    return trials


def ratio(measure: Measure, ours: Sequence[Trial], theirs: Sequence[Trial]) -> Ratio:
    """Return the ratio by which the trials `ours` are better than the trials `theirs` in one measure. The
    ratio is computed for each round. The result is the median of these ratios, with a confidence interval.
    """
    pairs = [
        (measure.value_of(one), measure.value_of(other)) for one, other in zip(ours, theirs, strict=True)
    ]
    better = [one / other if measure.higher_is_better else other / one for one, other in pairs]
    return Ratio(statistics.median(better), *median_interval(better))


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the ends of the interval of the median, and its level.

    The ends are the k-th smallest and the k-th largest value. The median lies outside of them with the
    probability that fewer than k of n fair coins show heads, on either side (H. A. David and H. N. Nagaraja,
    Order Statistics, 2003, section 7.1). k is the largest number whose level is at least LEVEL, or 1.
    """
    count = len(values)
    outside = [2 * value / 2**count for value in accumulate(math.comb(count, k) for k in range(count))]
    k = max((k for k in range(1, count // 2 + 1) if 1 - outside[k - 1] >= LEVEL), default=1)
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k], max(0.0, 1 - outside[k - 1])


def difference(equality: Equality, trials: Sequence[Trial]) -> float:
    """Return by how much the trials differ in a value that must be equal. For a number, this is the maximum
    difference between two trials. For a text, it is the number of trials whose text differs from that of
    the first trial.
    """
    values = [trial.result[equality.key] for trial in trials]
    if all(isinstance(value, int | float) for value in values):
        return float(max(values) - min(values))
    return float(sum(value != values[0] for value in values))


def compare(
    bench: Bench,
    size: Literal["small", "full"] = "full",
    rounds: int | None = None,
    run_once: Callable[[Arm], Trial] = run,
) -> Figures:
    """Run all arms of a bench in `rounds` rounds and return the figures of the comparison."""
    options = bench.sizes[size]
    arms = bench.arms(options)
    trials = alternate(arms.all, rounds or bench.rounds, run_once)
    figures = Figures()
    for number, measure in enumerate(bench.measures(options)):
        _measure(bench, arms, trials, measure, figures)
        if number == 0:
            found = ratio(measure, trials[arms.control.name], trials[arms.baselines[0].name])
            _control(bench, arms, found, size == "full", figures)
    compared = [one for arm in arms.all[:-1] for one in trials[arm.name]]
    for equality in bench.equal:
        name, runs = f"equality: {equality.name}", f"{len(compared)} runs"
        metric = Metric(name, "difference", equality.tolerance, kind=bench.label, spread=runs)
        figures.add(metric, difference(equality, compared))
    return figures


def _measure(
    bench: Bench, arms: Arms, trials: Mapping[str, list[Trial]], measure: Measure, figures: Figures
) -> None:
    for arm in arms.all[:-1]:
        metric = Metric(f"{measure.name}: {arm.name}", measure.unit, kind=bench.label)
        for trial in trials[arm.name]:
            figures.add(metric, measure.value_of(trial))
    for number, baseline in enumerate(arms.baselines):
        found = ratio(measure, trials[arms.engine.name], trials[baseline.name])
        name = f"{measure.name}: {arms.engine.name}, times better than {baseline.name}"
        target = measure.target if number == 0 else None
        spread = f"{found}, {len(trials[baseline.name])} rounds"
        figures.add(
            Metric(name, "times", target, higher_is_better=True, kind=bench.label, spread=spread),
            found.median,
        )


def _control(bench: Bench, arms: Arms, found: Ratio, has_target: bool, figures: Figures) -> None:
    """Add the row of the negative control to `figures`: the ratio `found` minus 1. If `has_target` is
    False, the row has no target.
    """
    name = f"negative control: {arms.control.name}, gain over {arms.baselines[0].name}"
    spread = f"ratio {found.median:.3f}, {found}"
    target = bench.control_tolerance if has_target else None
    metric = Metric(name, "ratio - 1", target, kind=bench.label, spread=spread, aim="within")
    figures.add(metric, found.median - 1)


def broken(figures: Figures) -> list[str]:
    """Return the names of the equality checks and controls that miss their target. A published bench must
    not have any.
    """
    return [
        row["metric"]
        for row in figures.rows()
        if row["met"] is False and row["metric"].startswith(("equality: ", "negative control: "))
    ]
