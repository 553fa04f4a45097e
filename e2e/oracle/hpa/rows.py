"""Figures of the comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.progress import Progress
from e2e.oracle.hpa.comparison import Tally, compare, differences, random_cases
from e2e.oracle.hpa.minimise import minimised
from e2e.oracle.hpa.mutations import MUTATIONS, Mutation
from e2e.oracle.hpa.program import ensure, results
from e2e.oracle.hpa.suites import SUITES, Suite

COUNT = 100_000
"""Number of random cases of each suite."""
SHOWN = 3
"""Number of differences that are minimised and printed."""
MAX_CASES_OF_A_FAULT = 5000
"""Number of cases in which the comparison must find a fault that is put in on purpose."""


def add(figures: Figures, count: int, progress: Progress) -> int:
    """Compare `count` random cases of each suite, and add the figures. Return the number of differences."""
    program = ensure(progress)
    differing = 0
    for suite in SUITES:
        tally = compare(suite, program, count, progress)
        differing += tally.differing
        figures.add(_metric(f"HPA, {suite.name}: random cases", "cases", count, more=True), tally.cases)
        figures.add(_metric(f"HPA, {suite.name}: decisions", "decisions"), tally.decisions)
        figures.add(
            _metric(f"HPA, {suite.name}: cases that differ from Kubernetes", "cases", 0), tally.differing
        )
        for text in _shown(suite, tally):
            progress.report(text)
    for mutation in MUTATIONS:
        metric = _metric(
            f"HPA, fault on purpose: {mutation.name}, found after", "cases", MAX_CASES_OF_A_FAULT
        )
        figures.add(metric, first_differing(mutation, progress))
    return differing


def first_differing(mutation: Mutation, progress: Progress) -> int | None:
    """Return the number of the first case that finds a fault; None if none of MAX_CASES_OF_A_FAULT does."""
    program = ensure(progress)
    suite = next(one for one in SUITES if one.name == mutation.suite)
    number, index = 0, 0
    while number < MAX_CASES_OF_A_FAULT:
        cases = random_cases(suite, index)
        theirs = results(program, suite.name, cases)
        with mutation.applied():
            for case, result in zip(cases, theirs, strict=True):
                number += 1
                if next(differences(suite, [case], [result]), None):
                    return number
        index += 1
    return None


def _shown(suite: Suite, tally: Tally) -> Iterator[str]:
    """Yield the texts of a few differences."""
    for found in tally.differences[:SHOWN]:
        small = minimised(suite, ensure(Progress(quiet=True)), found)
        sides = {"case": small.case, "Convoy": small.convoy, "Kubernetes": small.kubernetes}
        yield "\n".join(
            [f"{suite.name}: a difference", *(f"{name}: {json.dumps(one)}" for name, one in sides.items())]
        )


def _metric(name: str, unit: str, target: float | None = None, *, more: bool = False) -> Metric:
    return Metric(name, unit, target, higher_is_better=more)
