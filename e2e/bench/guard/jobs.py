"""Plays synthetic jobs with known faults. Counts correct causes, correct culprits and false verdicts.

The detector's parameters were chosen on seeds 0 to 9. The figures come from later seeds only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard.intervals import poisson_upper_bound
from e2e.bench.guard.job_outcomes import JobOutcome, play_job, scenarios
from e2e.bench.guard.sweeping.intervals import share
from e2e.cluster import machine
from e2e.cluster.progress import Progress

FIRST_SEED = 10


def bench(seeds: int, figures: Figures) -> None:
    """Play every scenario with `seeds` seeds, and add the rows."""
    progress, outcomes = Progress(), list[JobOutcome]()
    tasks = [
        (name, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for name in scenarios(np.random.default_rng(seed))
    ]
    with ProcessPoolExecutor(machine.cores()) as pool:
        for outcome in pool.map(_play_task, tasks, chunksize=2):
            outcomes.append(outcome)
            if len(outcomes) % 100 == 0:
                progress.report(f"{len(outcomes)} of {len(tasks)} jobs")
    add_rows(outcomes, figures)


def _play_task(task: tuple[str, int]) -> JobOutcome:
    return play_job(*task)


def add_rows(outcomes: Sequence[JobOutcome], figures: Figures) -> None:
    """Add the rows about correct causes, culprits, delays and false verdicts.

    Other rules have rows too, for the jobs on which they can be compared.
    """
    table = _ShareRows(figures)
    table.share("jobs with the right cause and no other", outcomes, _right, 0.98)
    for name in sorted({outcome.scenario for outcome in outcomes}):
        mine = [outcome for outcome in outcomes if outcome.scenario == name]
        table.share(f"{name}: the right cause and no other", mine, _right)
    guilty = [outcome for outcome in outcomes if outcome.guilty]
    table.share("jobs whose first accused are culprits", guilty, lambda one: (one.first_right, 1), 0.98)
    table.share("nodes with a lasting verdict that have culprits", outcomes, _precise, 0.99)
    table.share("nodes of culprits with a lasting verdict", outcomes, _found, 0.95)
    for size in sorted({_size(outcome) for outcome in outcomes}):
        mine = [outcome for outcome in outcomes if _size(outcome) == size]
        table.share(f"jobs of {size} ranks: the right cause and no other", mine, _right)
    _delays(guilty, figures)
    _false(outcomes, figures)
    compared = [outcome for outcome in outcomes if outcome.others]
    for rule in compared[0].others if compared else ():
        words = f"computing slowly or nobody's fault, {rule or 'Convoy'}"
        table.share(f"{words}: accused nodes that have culprits", compared, _precision_of(rule))
        table.share(f"{words}: nodes of culprits accused", compared, _recall_of(rule))
        slow = [outcome for outcome in compared if outcome.scenario == "half as fast"]
        table.share(f"{words}: of those with a culprit half as fast", slow, _recall_of(rule))


def _right(outcome: JobOutcome) -> tuple[int, int]:
    return outcome.cause_right, 1


def _precise(outcome: JobOutcome) -> tuple[int, int]:
    return outcome.lasting.guilty, outcome.lasting.guilty + outcome.lasting.healthy


def _found(outcome: JobOutcome) -> tuple[int, int]:
    return outcome.lasting.guilty, outcome.guilty


def _precision_of(rule: str) -> Callable[[JobOutcome], tuple[int, int]]:
    def count(outcome: JobOutcome) -> tuple[int, int]:
        one = outcome.others[rule]
        return one.guilty, one.guilty + one.healthy

    return count


def _recall_of(rule: str) -> Callable[[JobOutcome], tuple[int, int]]:
    return lambda outcome: (outcome.others[rule].guilty, outcome.guilty)


def _size(outcome: JobOutcome) -> str:
    return "64 to 256" if outcome.ranks <= 256 else "1,024 to 4,096"


def _delays(guilty: Sequence[JobOutcome], figures: Figures) -> None:
    """Add the rows of seconds from the fault to the first accusation of a culprit.

    If a job's culprits are never accused, its delay counts as infinite.
    """
    delays = sorted(math.inf if one.delay is None else one.delay for one in guilty)
    for part, target in ((0.5, None), (0.9, 15.0), (0.99, None)):
        value = delays[math.ceil(part * len(delays)) - 1] if delays else math.inf
        metric = Metric(
            f"from the fault to the first word on a culprit: p{100 * part:.0f}",
            "steps of a second",
            target,
            kind="simulated",
            spread=f"of {len(delays)} jobs",
        )
        figures.add(metric, value if math.isfinite(value) else None)


def _false(outcomes: Sequence[JobOutcome], figures: Figures) -> None:
    false, hours = sum(one.lasting.healthy for one in outcomes), sum(one.node_hours for one in outcomes)
    figures.add(Metric("healthy nodes that ever had a lasting verdict", "nodes", kind="simulated"), false)
    figures.add(Metric("node-hours in which they could have", "hours", kind="simulated"), hours)
    metric = Metric("false verdicts, upper bound", "1/node-hour", 1 / 20_000, kind="simulated")
    figures.add(metric, poisson_upper_bound(false) / hours)


class _ShareRows:
    """Adds rows with fractions of jobs. For the confidence intervals, the jobs of a seed form one cluster."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def share(
        self,
        name: str,
        outcomes: Sequence[JobOutcome],
        count: Callable[[JobOutcome], tuple[int, int]],
        target: float | None = None,
    ) -> None:
        by_seed: dict[int, tuple[int, int]] = {}
        for outcome in outcomes:
            before, now = by_seed.get(outcome.seed, (0, 0)), count(outcome)
            by_seed[outcome.seed] = before[0] + now[0], before[1] + now[1]
        one = share(list(by_seed.values()))
        spread = f"95 % interval {one.low:.3g} to {one.high:.3g}, {len(outcomes)} jobs"
        spread = spread if one.value is not None else f"nothing to count in {len(outcomes)} jobs"
        metric = Metric(name, "share", target, kind="simulated", higher_is_better=True, spread=spread)
        self._figures.add(metric, one.value)
