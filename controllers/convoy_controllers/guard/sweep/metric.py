"""The verdict on one node in one metric, from the samples of up to three runs of the metric's test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_controllers.guard.sweep import reference
from convoy_controllers.guard.sweep.measuring import Better
from convoy_controllers.guard.sweep.reference import Healthy, Reference
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

RUNS = 3
"""Maximum number of runs of a test. Two runs with the same outcome decide."""
FEWEST = 8
"""Minimum number of reference nodes for a comparison of a node with their distribution."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """Limits of a metric for one run of its test. A run fails in either of two cases: its deficit, z and
    distance all exceed their limits, or its variation exceeds its limit.
    """

    deficit: float
    """Share by which the run's median may be worse than the reference median."""
    z: float = 4.0
    """Limit of the deficit, in robust standard deviations of the healthy nodes' medians."""
    distance: float = 0.05
    """Upper bound of the limit of the distance (`reference.distance`). The limit follows from the reference
    nodes, but is never above this bound. The default is 1 - 0.95, where 0.95 is the required similarity.
    """
    variation: float = 3.0
    """Limit of the coefficient of variation, relative to that of the reference nodes."""
    doubt: float = 0.75
    """Share of the limits of deficit and z. A run is unclear if it does not fail but exceeds this share of
    both limits.
    """
    floor: float | None = None
    """Value that the class's catalogue promises, in the metric's unit. A node is compared with this value
    if there are too few reference nodes.
    """


CRITERIA = {
    "hbm": Criterion(0.03),
    "memory-copy": Criterion(0.10),
    "jitter": Criterion(1.0, distance=0.5),
    "loopback": Criterion(0.25, distance=0.2),
    "disk-write": Criterion(0.30, distance=0.2),
    "disk-read": Criterion(0.30, distance=0.2),
}
"""Criteria of metrics whose deficit is not the default of 5 %. Results of kernels and shared disks vary
more.
"""


@dataclass(frozen=True, slots=True)
class _Run:
    """Outcome, reason and figures of one run of the metric's test."""

    outcome: Outcome
    reason: Reason
    evidence: tuple[tuple[str, float], ...] = ()


def judge(
    node: str, runs: Sequence[Sequence[float]], known: Reference, criterion: Criterion | None = None
) -> Verdict:
    """Return the verdict on a node from its runs so far, oldest first. The node's own values are left out
    of the reference.

    A first run that passes is enough. Otherwise two of three runs must agree.
    """
    criterion = criterion or CRITERIA.get(known.metric, Criterion(0.05))
    others = reference.healthy(known, without=node)
    results = [_run(run, known.better, others, criterion) for run in runs[:RUNS]]
    failed = [one for one in results if one.outcome is Outcome.FAIL]
    passed = [one for one in results if one.outcome is Outcome.PASS]
    if len(failed) >= 2:
        return _verdict(node, failed[-1], f"in {len(failed)} of {len(results)} runs", known)
    if passed and (len(passed) >= 2 or results[0].outcome is Outcome.PASS):
        words = f"in {len(passed)} of {len(results)} runs"
        return _verdict(node, passed[-1], words, known)
    again = len(results) < RUNS
    if not results:
        return Verdict(
            node,
            Outcome.INCONCLUSIVE,
            Reason.NOT_MEASURED,
            f"{known.metric}: the test has not run",
            again=True,
        )
    last = results[-1]
    reason = Reason.NOT_REPRODUCED if last.outcome is not Outcome.INCONCLUSIVE else last.reason
    # Another run would still have too few reference nodes, so do not request one.
    again = again and reason is not Reason.TOO_FEW_REFERENCES
    words = f"{known.metric}: of {len(results)} runs {len(failed)} failed and {len(passed)} passed"
    return Verdict(node, Outcome.INCONCLUSIVE, reason, words, last.evidence, again)


def _verdict(node: str, run: _Run, words: str, known: Reference) -> Verdict:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in run.evidence)
    return Verdict(node, run.outcome, run.reason, f"{known.metric} {words}: {figures}", run.evidence)


def _run(samples: Sequence[float], better: Better, others: Healthy | None, criterion: Criterion) -> _Run:
    row = reference.quantiles(samples)
    if row is None:
        return _Run(Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    middle = float(row[reference.LEVELS // 2])
    if others is None or others.count < FEWEST:
        return _by_floor(middle, better, others, criterion)
    sign = 1.0 if better is Better.HIGHER else -1.0
    deficit = sign * (others.middle - middle) / others.middle
    z = sign * (others.middle - middle) / others.spread
    away = reference.distance(row, others.quantiles, better)
    # `least` is the limit of the distance. Healthy nodes stay below the limit. A node exceeds the limit if
    # all its samples are worse by `criterion.deficit`.
    least = min(criterion.distance, max(others.distance, criterion.deficit / 2))
    variation = float(row.std() / row.mean()) / others.variation
    evidence = (
        ("median", middle),
        ("reference median", others.middle),
        ("deficit", deficit),
        ("z", z),
        ("distance", away),
        ("relative variation", variation),
        ("reference nodes", float(others.count)),
    )
    if deficit > criterion.deficit and z > criterion.z and away > least:
        return _Run(Outcome.FAIL, Reason.BELOW_REFERENCE, evidence)
    if variation > criterion.variation:
        return _Run(Outcome.FAIL, Reason.UNSTEADY, evidence)
    if deficit > criterion.doubt * criterion.deficit and z > criterion.doubt * criterion.z:
        return _Run(Outcome.INCONCLUSIVE, Reason.UNCLEAR, evidence)
    return _Run(Outcome.PASS, Reason.MEETS_REFERENCE, evidence)


def _by_floor(middle: float, better: Better, others: Healthy | None, criterion: Criterion) -> _Run:
    count = float(others.count if others else 0)
    if criterion.floor is None:
        evidence = (("median", middle), ("reference nodes", count))
        return _Run(Outcome.INCONCLUSIVE, Reason.TOO_FEW_REFERENCES, evidence)
    known = (("median", middle), ("floor", criterion.floor), ("reference nodes", count))
    meets = middle >= criterion.floor if better is Better.HIGHER else middle <= criterion.floor
    if meets:
        return _Run(Outcome.PASS, Reason.ABOVE_FLOOR, known)
    return _Run(Outcome.FAIL, Reason.BELOW_FLOOR, known)
