"""A comparison of an engine with its baselines: ratios by round, equalities and a negative control.

Every arm runs once in each round. Each round starts one arm later than the round before. A ratio compares
runs of the same round, so a machine that slows down over the hours slows both of them.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from convoy_workloads.bench.arms import Arm, Arms
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial, run

RESAMPLES = 2000
LEVEL = 0.95
Label = Literal["measured", "calibrated simulation", "paper claim"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity that every arm reports."""

    name: str
    """Name in a row: `tokens per second`."""
    unit: str
    of: Callable[[Trial], float]
    higher_is_better: bool = False
    target: float | None = None
    """Least ratio of the engine to its first baseline. Above 1 the engine is better."""


@dataclass(frozen=True, kw_only=True)
class Equality:
    """A value that must be equal in the results of every run of the engine and its baselines."""

    key: str
    """Name in the result."""
    name: str
    tolerance: float = 0.0
    """Largest difference of numbers that counts as equal. Texts must be equal."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An engine's bench."""

    sizes: Mapping[Literal["small", "full"], Mapping[str, Any]]
    """Options of `arms`. `small` ends within seconds; `full` gives the published figures."""
    arms: Callable[[Mapping[str, Any]], Arms]
    measures: Callable[[Mapping[str, Any]], Sequence[Measure]]
    equal: Sequence[Equality]
    rounds: int = 7
    label: Label = "measured"
    control_tolerance: float = 0.1
    """Largest gain of the control over the first baseline in the first measure: the ratio minus 1. A
    control worse than the baseline passes. Size `small` reports the gain without judging it.
    """


@dataclass(frozen=True)
class Ratio:
    """Ratio by which one arm is better than another, over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{LEVEL:.0%}: {self.low:.3f} to {self.high:.3f}"


def alternate(
    arms: Sequence[Arm], rounds: int, run_once: Callable[[Arm], Trial] = run
) -> dict[str, list[Trial]]:
    """Run every arm once in each round, each time starting one arm later. Return the trials by arm."""
    trials: dict[str, list[Trial]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            trials[arm.name].append(run_once(arm))
    return trials


def ratio(measure: Measure, ours: Sequence[Trial], theirs: Sequence[Trial]) -> Ratio:
    """Return the median of the rounds' ratios, and its interval from resampling the rounds."""
    pairs = [(measure.of(one), measure.of(other)) for one, other in zip(ours, theirs, strict=True)]
    better = [one / other if measure.higher_is_better else other / one for one, other in pairs]
    drawn = random.Random(0)  # noqa: S311 - a bootstrap that gives the same interval each time
    medians = sorted(statistics.median(drawn.choices(better, k=len(better))) for _ in range(RESAMPLES))
    tail = math.floor((1 - LEVEL) / 2 * RESAMPLES)
    return Ratio(statistics.median(better), medians[tail], medians[-1 - tail])


def difference(equality: Equality, trials: Sequence[Trial]) -> float:
    """Return the largest difference of a value. For texts, return the number of those unlike the first."""
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
    """Run a bench and return its rows."""
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
            figures.add(metric, measure.of(trial))
    for number, baseline in enumerate(arms.baselines):
        found = ratio(measure, trials[arms.engine.name], trials[baseline.name])
        name = f"{measure.name}: {arms.engine.name}, times better than {baseline.name}"
        target = measure.target if number == 0 else None
        spread = f"{found}, {len(trials[baseline.name])} rounds"
        figures.add(
            Metric(name, "times", target, higher_is_better=True, kind=bench.label, spread=spread),
            found.median,
        )


def _control(bench: Bench, arms: Arms, found: Ratio, judged: bool, figures: Figures) -> None:
    """Add the row of the control. Without `judged` it has no target."""
    name = f"negative control: {arms.control.name}, gain over {arms.baselines[0].name}"
    spread = f"ratio {found.median:.3f}, {found}"
    target = bench.control_tolerance if judged else None
    figures.add(Metric(name, "ratio - 1", target, kind=bench.label, spread=spread), found.median - 1)


def broken(figures: Figures) -> list[str]:
    """Return the names of rows that a published bench must meet but does not: equalities and the control."""
    return [
        row["metric"]
        for row in figures.rows()
        if row["met"] is False and row["metric"].startswith(("equality: ", "negative control: "))
    ]
