"""Compares a pair sweep with rules of other projects: how many slow nodes of synthetic fleets each finds.

The sweep's settings were chosen on seeds 0 to 9. The results come from seeds 10 to 59.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard.sweeping.fleets import Case, Fleet, Noise
from e2e.bench.guard.sweeping.intervals import share
from e2e.bench.guard.sweeping.rules import RULES
from e2e.cluster import machine
from e2e.cluster.progress import Progress

NAME, COMMAND = "guard_sweep", "make bench-guard-sweep"
SEEDS = range(10, 60)
FLEETS = 20
"""Number of fleets per seed. Cases with over 128 nodes have a quarter as many."""

_HEAVY = Noise(heavy=True, collided=0.03)
_RACKS = Noise(rack=0.015, rack_round=0.015)
_LARGE = 128


@dataclass(frozen=True)
class Goal:
    """Targets of Convoy's rule in a case; None for no target."""

    recall: float | None = None
    precision: float | None = None
    tests: float | None = None


CASES: tuple[tuple[Case, Goal], ...] = (
    (Case("64 nodes, 2 slow by 10 %", 64, 2, 1.10), Goal(0.97, 0.98, 90)),
    (Case("64 nodes, 2 slow by 8 %", 64, 2, 1.08), Goal(0.85)),
    (Case("64 nodes, 2 slow by 20 %", 64, 2, 1.20), Goal(0.97, 0.98)),
    (Case("64 nodes, 8 slow by 10 %", 64, 8, 1.10), Goal(0.97, 0.98)),
    (Case("64 nodes, none slow", 64, 0, 1.0), Goal()),
    (Case("256 nodes, 6 slow by 10 %", 256, 6, 1.10), Goal(0.97, 0.98)),
    (Case("64 nodes, 2 slow by 10 %, heavy tails and collisions", 64, 2, 1.10, _HEAVY), Goal()),
    (Case("64 nodes, 2 slow by 20 %, heavy tails and collisions", 64, 2, 1.20, _HEAVY), Goal()),
    (Case("64 nodes, 2 slow by 10 %, racks differ", 64, 2, 1.10, _RACKS), Goal()),
    (Case("64 nodes, 2 slow by 20 %, racks differ", 64, 2, 1.20, _RACKS), Goal()),
    (Case("64 nodes, 2 slow by 10 %, noise of 4 %", 64, 2, 1.10, Noise(test=0.04)), Goal()),
)


@dataclass(frozen=True)
class Count:
    """Counts of one rule's verdicts over the fleets of one seed."""

    found: int = 0
    wrong: int = 0
    faulty: int = 0
    nodes: int = 0
    unknown: int = 0
    tests: int = 0
    rounds: int = 0
    fleets: int = 0


def bench(seeds: Sequence[int], fleets: int, figures: Figures) -> None:
    """Apply every rule to every case, and add the rows."""
    progress = Progress()
    with ProcessPoolExecutor(machine.cores()) as pool:
        for case, goal in CASES:
            many = max(1, fleets // 4) if case.nodes > _LARGE else fleets
            for rule in RULES:
                counts = list(
                    pool.map(count, *zip(*((case, rule, seed, many) for seed in seeds), strict=True))
                )
                _add_rows(case, rule, counts, goal if rule == "Convoy" else Goal(), figures)
            progress.report(case.words)


def count(case: Case, rule: str, seed: int, fleets: int) -> Count:
    """Return the counts of a rule's verdicts on the fleets of one seed. Every rule gets the same fleets."""
    found = wrong = unknown = tests = rounds = 0
    for number in range(fleets):
        fleet = Fleet(case, (seed, number))
        verdict = RULES[rule](fleet, seed * 1000 + number)
        found += len(verdict.failed & fleet.faulty)
        wrong += len(verdict.failed - fleet.faulty)
        unknown += len(verdict.unknown)
        tests += fleet.tests
        rounds += verdict.rounds
    return Count(found, wrong, case.faulty * fleets, case.nodes * fleets, unknown, tests, rounds, fleets)


def _add_rows(case: Case, rule: str, counts: Sequence[Count], goal: Goal, figures: Figures) -> None:
    fleets = sum(one.fleets for one in counts)

    def name(what: str, which: str = rule) -> str:
        return f"{case.words}: {what}, {which}"

    def add(
        what: str, pairs: Sequence[tuple[int, int]], target: float | None, higher_is_better: bool = True
    ) -> None:
        one = share(pairs)
        other = next(entry for entry in RULES if entry != "Convoy") if rule == "Convoy" else ""
        spread = f"95 % interval {one.low:.3g} to {one.high:.3g}, {fleets} fleets"
        baseline = name(what, other) if other else ""
        metric = Metric(name(what), "share", target, baseline, "simulated", higher_is_better, spread)
        if one.value is not None:
            figures.add(metric, one.value)

    if case.faulty:
        add("slow nodes that fail", [(one.found, one.faulty) for one in counts], goal.recall)
        add(
            "failed nodes that are slow",
            [(one.found, one.found + one.wrong) for one in counts],
            goal.precision,
        )
    add(
        "healthy nodes that fail",
        [(one.wrong, one.nodes - one.faulty) for one in counts],
        target=None,
        higher_is_better=False,
    )
    if rule == "Convoy":
        add(
            "nodes of which it cannot tell",
            [(one.unknown, one.nodes) for one in counts],
            None,
            higher_is_better=False,
        )
        rounds = sum(one.rounds for one in counts) / fleets
        figures.add(
            Metric(name("rounds"), "rounds", kind="simulated", spread=f"mean of {fleets} fleets"), rounds
        )
    tests = sum(one.tests for one in counts) / fleets
    spread = f"mean of {fleets} fleets"
    figures.add(Metric(name("tests of pairs"), "tests", goal.tests, kind="simulated", spread=spread), tests)
