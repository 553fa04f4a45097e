"""Compares the two sides on many random cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from e2e.cluster import machine
from e2e.cluster.progress import Progress
from e2e.oracle.hpa.program import Case, Result, results
from e2e.oracle.hpa.suites import Suite, suite_named

BATCH = 500
"""Number of cases that one run of the Go program gets."""
MAX_DIFFERENCES = 20
"""Number of differing cases that a tally keeps. It counts all of them."""
_REPORT_EVERY = 20


@dataclass(frozen=True)
class Difference:
    """A case for which Convoy's result is not Kubernetes'."""

    case: Case
    convoy: Result
    kubernetes: Result


@dataclass(frozen=True)
class Tally:
    """The outcome of a number of cases."""

    cases: int = 0
    decisions: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.cases + other.cases,
            self.decisions + other.decisions,
            self.differing + other.differing,
            (*self.differences, *other.differences)[:MAX_DIFFERENCES],
        )


def compare(suite: Suite, program: Path, count: int, progress: Progress) -> Tally:
    """Compare both sides on at least `count` random cases, which are the same in each run."""
    tally = Tally()
    batches = range(-(-count // BATCH))
    with ProcessPoolExecutor(machine.cores()) as pool:
        futures = [pool.submit(_batch, suite.name, program, index) for index in batches]
        for done, future in enumerate(futures, 1):
            tally += future.result()
            if done % _REPORT_EVERY == 0 or done == len(futures):
                progress.report(f"{suite.name}: {tally.cases} cases, {tally.differing} differ")
    return tally


def random_cases(suite: Suite, index: int, number: int = BATCH) -> list[Case]:
    """Return the cases of a batch."""
    rng = Random(f"{suite.name} {index}")
    return [suite.generate(rng) for _ in range(number)]


def differences(suite: Suite, cases: Sequence[Case], theirs: Sequence[Result]) -> Iterator[Difference]:
    """Yield the cases for which Convoy's result is not Kubernetes'."""
    for case, result in zip(cases, theirs, strict=True):
        convoy, kubernetes = convoy_result(suite, case), suite.comparable(case, result)
        if convoy != kubernetes:
            yield Difference(case, convoy, kubernetes)


def convoy_result(suite: Suite, case: Case) -> Result:
    """Return Convoy's result. An exception is a result too: Kubernetes has an answer to every case."""
    try:
        return suite.convoy(case)
    except Exception as error:
        return {"raised": repr(error)}


def _batch(name: str, program: Path, index: int) -> Tally:
    # A suite has lambdas, so it cannot be sent to another process.
    suite = suite_named(name)
    cases = random_cases(suite, index)
    found = tuple(differences(suite, cases, results(program, suite.name, cases)))
    return Tally(len(cases), sum(map(suite.decisions, cases)), len(found), found)
