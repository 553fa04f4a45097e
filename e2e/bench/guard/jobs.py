"""Synthetic jobs with known faults: is the cause right, are the culprits, and what does a false verdict cost?

Parameters were frozen on seeds 0 to 9; what is told comes from seeds from 10 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard.intervals import most
from e2e.bench.guard.lives import Life, live, scenarios
from e2e.bench.guard.sweeping.intervals import share
from e2e.cluster import machine
from e2e.cluster.progress import Progress

FIRST_SEED = 10


def bench(seeds: int, figures: Figures) -> None:
    """Plays all scenarios with that many seeds."""
    progress, lives = Progress(), list[Life]()
    tasks = [
        (name, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for name in scenarios(np.random.default_rng(seed))
    ]
    with ProcessPoolExecutor(machine.cores()) as pool:
        for life in pool.map(_live, tasks, chunksize=2):
            lives.append(life)
            if len(lives) % 100 == 0:
                progress.report(f"{len(lives)} of {len(tasks)} jobs")
    add_rows(lives, figures)


def _live(task: tuple[str, int]) -> Life:
    return live(*task)


def add_rows(lives: Sequence[Life], figures: Figures) -> None:
    """Rows: causes, culprits, delays, false verdicts, and the rules of others on the jobs they can judge."""
    table = _Table(figures)
    table.share("jobs with the right cause and no other", lives, _right, 0.98)
    for name in sorted({life.scenario for life in lives}):
        mine = [life for life in lives if life.scenario == name]
        table.share(f"{name}: the right cause and no other", mine, _right)
    guilty = [life for life in lives if life.guilty]
    table.share("jobs whose first accused are culprits", guilty, lambda one: (one.first_right, 1), 0.98)
    table.share("nodes with a lasting verdict that have culprits", lives, _precise, 0.99)
    table.share("nodes of culprits with a lasting verdict", lives, _found, 0.95)
    for size in sorted({_size(life) for life in lives}):
        mine = [life for life in lives if _size(life) == size]
        table.share(f"jobs of {size} ranks: the right cause and no other", mine, _right)
    _delays(guilty, figures)
    _false(lives, figures)
    compared = [life for life in lives if life.others]
    for rule in compared[0].others if compared else ():
        words = f"computing slowly or nobody's fault, {rule or 'Convoy'}"
        table.share(f"{words}: accused nodes that have culprits", compared, _precision_of(rule))
        table.share(f"{words}: nodes of culprits accused", compared, _recall_of(rule))
        slow = [life for life in compared if life.scenario == "half as fast"]
        table.share(f"{words}: of those with a culprit half as fast", slow, _recall_of(rule))


def _right(life: Life) -> tuple[int, int]:
    return life.cause_right, 1


def _precise(life: Life) -> tuple[int, int]:
    return life.lasting.guilty, life.lasting.guilty + life.lasting.healthy


def _found(life: Life) -> tuple[int, int]:
    return life.lasting.guilty, life.guilty


def _precision_of(rule: str) -> Callable[[Life], tuple[int, int]]:
    def count(life: Life) -> tuple[int, int]:
        one = life.others[rule]
        return one.guilty, one.guilty + one.healthy

    return count


def _recall_of(rule: str) -> Callable[[Life], tuple[int, int]]:
    return lambda life: (life.others[rule].guilty, life.guilty)


def _size(life: Life) -> str:
    return "64 to 256" if life.ranks <= 256 else "1,024 to 4,096"


def _delays(guilty: Sequence[Life], figures: Figures) -> None:
    """From the fault to the first word on a culprit; who is never named counts as later than all."""
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


def _false(lives: Sequence[Life], figures: Figures) -> None:
    false, hours = sum(one.lasting.healthy for one in lives), sum(one.node_hours for one in lives)
    figures.add(Metric("healthy nodes that ever had a lasting verdict", "nodes", kind="simulated"), false)
    figures.add(Metric("node-hours in which they could have", "hours", kind="simulated"), hours)
    metric = Metric("false verdicts, upper bound", "1/node-hour", 1 / 20_000, kind="simulated")
    figures.add(metric, most(false) / hours)


class _Table:
    """Shares over lives, with intervals in which those of one seed count as one cluster."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def share(
        self,
        name: str,
        lives: Sequence[Life],
        count: Callable[[Life], tuple[int, int]],
        target: float | None = None,
    ) -> None:
        by_seed: dict[int, tuple[int, int]] = {}
        for life in lives:
            before, now = by_seed.get(life.seed, (0, 0)), count(life)
            by_seed[life.seed] = before[0] + now[0], before[1] + now[1]
        one = share(list(by_seed.values()))
        spread = f"95 % interval {one.low:.3g} to {one.high:.3g}, {len(lives)} jobs"
        spread = spread if one.value is not None else f"nothing to count in {len(lives)} jobs"
        metric = Metric(name, "share", target, kind="simulated", higher_is_better=True, spread=spread)
        self._figures.add(metric, one.value)
