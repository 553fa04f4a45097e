"""Figures of the comparison."""

from __future__ import annotations

import json
from pathlib import Path

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.progress import Progress
from e2e.oracle.hpa.comparison import BATCH, Difference, compare, differences, random_cases
from e2e.oracle.hpa.minimise import minimised
from e2e.oracle.hpa.mutations import MUTATIONS, Mutation
from e2e.oracle.hpa.program import ensure, results
from e2e.oracle.hpa.suites import SUITES, Suite, suite_named

COUNT = 100_000
"""Number of random cases of each suite."""
SHOWN = 3
"""Number of differences that are minimised and printed."""
MAX_CASES_OF_A_FAULT = 5000
"""Number of cases in which the comparison must find a fault that is put in on purpose."""


def add(figures: Figures, count: int, progress: Progress) -> int:
    """Compare `count` random cases of each suite, and add the figures. Return the number that differ."""
    program = ensure(progress)
    differing = 0
    for suite in SUITES:
        tally = compare(suite, program, count, progress)
        differing += tally.differing
        name = f"HPA, {suite.name}"
        cases = Metric(f"{name}: random cases", "cases", count, higher_is_better=True)
        figures.add(cases, tally.cases)
        figures.add(Metric(f"{name}: decisions in them", "decisions", higher_is_better=True), tally.decisions)
        figures.add(Metric(f"{name}: cases that differ from Kubernetes", "cases", 0), tally.differing)
        for found in tally.differences[:SHOWN]:
            progress.report(_text(suite, minimised(suite, program, found)))
    for mutation in MUTATIONS:
        name = f"HPA, fault on purpose: {mutation.name}, found after"
        figures.add(Metric(name, "cases", MAX_CASES_OF_A_FAULT), first_differing(mutation, program))
    return differing


def first_differing(mutation: Mutation, program: Path) -> int | None:
    """Return the number of the first case that finds a fault; None if none of MAX_CASES_OF_A_FAULT does."""
    suite = suite_named(mutation.suite)
    for index in range(MAX_CASES_OF_A_FAULT // BATCH):
        cases = random_cases(suite, index)
        theirs = results(program, suite.name, cases)
        with mutation.applied():
            for number, pair in enumerate(zip(cases, theirs, strict=True), index * BATCH + 1):
                if any(differences(suite, *([one] for one in pair))):
                    return number
    return None


def _text(suite: Suite, found: Difference) -> str:
    sides = {"case": found.case, "Convoy": found.convoy, "Kubernetes": found.kubernetes}
    lines = [f"{name}: {json.dumps(one)}" for name, one in sides.items()]
    return "\n".join([f"{suite.name}: a difference", *lines])
