"""Plays synthetic jobs in which two or three ranks do the same work, with a slow rank and without.

The detector's parameters were chosen on seeds 0 to 9. The figures come from later seeds only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.synthetic import Job, play
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard import detectors
from e2e.bench.guard.jobs import FIRST_SEED
from e2e.cluster import machine
from e2e.cluster.progress import Progress

MAX_SEEDS = 20
ONSET, WINDOWS, WITHIN = 25, 48, 10
"""First slow window, number of windows, and number of slow windows within which the rank must be named."""
SETTLED = 8
"""Number of windows at the start of a job in which accusations of other rules do not count."""
SLOWDOWN = 0.2
LAYOUTS = {
    "2x4": (Job(stages=4, replicas=2, per_node=1), 0.9),
    "3x2": (Job(stages=2, replicas=3, per_node=1), 0.9),
    "2x2": (Job(stages=2, replicas=2, per_node=1), 0.9),
    "dp 2": (Job(stages=1, replicas=2, per_node=1), 0.8),
    "dp 3": (Job(stages=1, replicas=3, per_node=1), 0.8),
}
"""Job and target share of named ranks, by layout: replicas x stages, or replicas of one stage."""

Case = tuple[Job, list[Fault]]


def _slow(job: Job, rank: int) -> Case:
    return job, [Fault("slow", (rank,), SLOWDOWN, ONSET)]


def _slow_from_start(job: Job, rank: int) -> Case:
    return job, [Fault("slow", (rank,), SLOWDOWN, 1)]


def _slow_uneven_work(job: Job, rank: int) -> Case:
    return replace(job, work=0.15, tokens=True), [Fault("slow", (rank,), SLOWDOWN, ONSET)]


SLOW: dict[str, Callable[[Job, int], Case]] = {
    "one rank 20% slower": _slow,
    "one rank 20% slower from the first step": _slow_from_start,
    "one rank 20% slower, uneven work": _slow_uneven_work,
}
"""Cases with a slow rank. The first has a target."""
HEALTHY: dict[str, Callable[[Job, int], Case]] = {
    "the same without the slow rank": lambda job, _: (job, []),
    "a long replica": lambda job, rank: (job, [Fault("replica", (rank % job.replicas,), SLOWDOWN, 1)]),
    "samples of different length": lambda job, _: (replace(job, work=0.2), []),
    "all ranks slower": lambda job, _: (job, [Fault("cap", (), SLOWDOWN, ONSET)]),
    "autocorrelated noise of 10%": lambda job, _: (replace(job, sigma=0.1, rho=0.8), []),
    "lost telemetry": lambda job, _: (job, [Fault("lost telemetry", (), 0.1)]),
}
"""Cases without a slow rank, in which nobody may be named."""
SOME_STAGES: dict[str, Callable[[Job, int], Case]] = {
    "a long last stage": lambda job, _: (replace(job, last_stage=1.3), []),
    "a replica that becomes longer": lambda job, rank: (
        job,
        [Fault("replica", (rank % job.replicas,), SLOWDOWN, ONSET)],
    ),
}
"""More such cases for jobs of several stages. With one stage, a replica is a single rank."""
_CASES = SLOW | HEALTHY | SOME_STAGES


@dataclass(frozen=True)
class SmallJobOutcome:
    """Ranks that each rule accused in one job. Convoy's detector has the empty name."""

    layout: str
    case: str
    rank: int
    """Rank that is slow, if the case has a slow rank."""
    first: dict[str, dict[int, int]]
    """Window of the first accusation, by rule and rank."""

    def delay(self, rule: str) -> int | None:
        """Return the number of slow windows until the rule accused the slow rank; None if it never did."""
        onset = next(fault.onset for fault in _CASES[self.case](LAYOUTS[self.layout][0], self.rank)[1])
        at = self.first[rule].get(self.rank)
        return at - onset + 1 if at is not None and at >= onset else None

    def wrong(self, rule: str) -> int:
        """Return the number of ranks that the rule accused although they were not slow."""
        right = self.case in SLOW and self.delay(rule) is not None
        return len(self.first[rule]) - right


def play_job(layout: str, case: str, seed: int) -> SmallJobOutcome:
    """Play one job. The slow rank depends on the seed."""
    plain, _ = LAYOUTS[layout]
    rank = int(np.random.default_rng(seed).integers(plain.size))
    job, faults = _CASES[case](plain, rank)
    rules = {"": detectors.convoy(initial_state(job.layout()))}
    rules |= {name: make() for name, make in detectors.OTHERS.items()}
    first: dict[str, dict[int, int]] = {name: {} for name in rules}
    for window, table in enumerate(play(job, faults, WINDOWS, seed), start=1):
        for name, rule in rules.items():
            for accused in rule(table):
                if not name or window > SETTLED:
                    first[name].setdefault(accused, window)
    return SmallJobOutcome(layout, case, rank, first)


def bench(seeds: int, figures: Figures) -> None:
    """Play every case of every layout, and add the rows."""
    progress, outcomes = Progress(), list[SmallJobOutcome]()
    tasks = [
        (layout, case, seed)
        for layout, (job, _) in LAYOUTS.items()
        for case in _CASES
        if job.stages > 1 or case not in SOME_STAGES
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, MAX_SEEDS))
    ]
    with ProcessPoolExecutor(machine.cores()) as pool:
        for outcome in pool.map(_play_task, tasks, chunksize=4):
            outcomes.append(outcome)
            if len(outcomes) % 100 == 0:
                progress.report(f"{len(outcomes)} of {len(tasks)} small jobs")
    add_rows(outcomes, figures)


def _play_task(task: tuple[str, str, int]) -> SmallJobOutcome:
    return play_job(*task)


def add_rows(outcomes: Sequence[SmallJobOutcome], figures: Figures) -> None:
    """Add the rows of named and wrongly named ranks, for Convoy and for other rules."""
    for layout, (_, target) in LAYOUTS.items():
        mine = [one for one in outcomes if one.layout == layout]
        plain = next(iter(SLOW))
        for case in SLOW:
            rules = ("", *detectors.OTHERS) if case == plain else ("",)
            for rule in rules:
                goal = target if case == plain and not rule else None
                _add_named(
                    f"{layout}, {case}", rule, goal, [one for one in mine if one.case == case], figures
                )
        ours = [one for one in mine if one.case in SLOW]
        _add_wrong(f"{layout}: healthy ranks named beside a slow one", "", 1, ours, figures)
        for case in (*HEALTHY, *SOME_STAGES):
            if found := [one for one in mine if one.case == case]:
                _add_wrong(f"{layout}, {case}: ranks named", "", 0, found, figures)
        healthy = [one for one in mine if one.case not in SLOW]
        for rule in ("", *detectors.OTHERS):
            goal = 1 if not rule else None
            _add_wrong(f"{layout}, no slow rank: ranks named", rule, goal, healthy, figures)


def _add_named(
    words: str, rule: str, target: float | None, found: Sequence[SmallJobOutcome], figures: Figures
) -> None:
    delays = [one.delay(rule) for one in found]
    name = f"{words}{', ' + rule if rule else ''}: named within {WITHIN} steps"
    metric = Metric(
        name, "share", target, kind="simulated", higher_is_better=True, spread=f"of {len(found)} jobs"
    )
    share = sum(one is not None and one <= WITHIN for one in delays) / max(1, len(delays))
    figures.add(metric, share)


def _add_wrong(
    words: str, rule: str, target: float | None, found: Iterable[SmallJobOutcome], figures: Figures
) -> None:
    counts = [one.wrong(rule) for one in found]
    name = f"{words}{', ' + rule if rule else ''}"
    metric = Metric(name, "ranks", target, kind="simulated", spread=f"of {len(counts)} jobs")
    figures.add(metric, sum(counts))
