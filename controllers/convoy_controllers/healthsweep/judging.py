"""The verdict on one node: its runs are compared with its class, and the tests to repeat are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_controllers.guard.sweep import fingerprint, metric
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict
from convoy_controllers.guard.sweep.verdict import worst as worst_of
from convoy_controllers.healthsweep.classes import OWN, digests_of, reference_of
from convoy_controllers.healthsweep.observed import INVENTORY, End, Measurement, NodeReport
from convoy_crds.hardwareclass import HardwareClassStatus
from convoy_crds.healthsweep import Finding
from convoy_crds.nodehealth import Verdict as NodeVerdict

MOST_FINDINGS = 8
_MOST_WORDS = 256
_RANK = {Outcome.FAIL: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2}
_UNCORRECTED = ("memory.ue_count", "ecc.errors.uncorrected.volatile.total")
"""Name suffixes of error counters that must be 0. They count from the node's boot."""


@dataclass(frozen=True, slots=True)
class RunAssessment:
    """Assessment of a node's runs so far."""

    verdict: NodeVerdict
    message: str
    findings: tuple[Finding, ...]
    """Tests that did not pass, the worst first."""
    again: tuple[str, ...]
    """Metrics whose tests may give a clear outcome if they are repeated."""


def judge(
    hardware: str, runs: Sequence[NodeReport], known: HardwareClassStatus, *, node_tests: bool = True
) -> RunAssessment:
    """Return the assessment of a node from its runs.

    `runs`: one or more reports, oldest first; `known`: the class of the first run; `node_tests`: True if
    the sweep requires the single-node tests (tier L1), not only the inventory.
    """
    first = runs[0]
    found: list[tuple[Verdict, Measurement | None]] = [(_inventory(hardware, first), None)]
    if node_tests:
        found += [(one, None) for one in _lacking(hardware, first, known)]
    for one in first.metrics:
        if one.metric != INVENTORY and one.end is not End.NOT_AVAILABLE:
            again = [_same(run, one) for run in runs[1:]]
            several = [one, *(more for more in again if more is not None)]
            found.append((_judged(hardware, several, known), one))
    open_ones = [(verdict, one) for verdict, one in found if verdict.outcome is not Outcome.PASS]
    open_ones.sort(key=lambda pair: _RANK[pair[0].outcome])
    decided = any(verdict.outcome is Outcome.FAIL for verdict, _ in found)
    names = {one.metric for verdict, one in open_ones if verdict.again and one is not None}
    worst = worst_of([verdict for verdict, _ in found])
    return RunAssessment(
        NodeVerdict(worst.outcome.value),
        _message(worst, [verdict for verdict, _ in found]),
        tuple(_finding(verdict, one) for verdict, one in open_ones[:MOST_FINDINGS]),
        () if decided or len(runs) >= metric.RUNS else tuple(sorted(names)),
    )


def _lacking(hardware: str, report: NodeReport, known: HardwareClassStatus) -> list[Verdict]:
    """Return an inconclusive verdict for each test that other nodes of the class have run and this node has
    not.
    """
    found = []
    if report.message:
        words = f"its agent stopped the tests early: {report.message}"
        found.append(Verdict(hardware, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words))
    there = {one.metric for one in report.metrics if one.end is not End.NOT_AVAILABLE}
    for one in known.metrics:
        if one.reference and one.name not in there:
            why = next(
                (other.message for other in report.metrics if other.metric == one.name),
                "the agent did not report it",
            )
            words = f"{one.name}: missing, but other nodes of its class have it ({why})"
            found.append(Verdict(hardware, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words))
    return found


def _same(run: NodeReport, one: Measurement) -> Measurement | None:
    return next((more for more in run.metrics if more.label == one.label), None)


def _inventory(hardware: str, report: NodeReport) -> Verdict:
    if not report.digest:
        one = next((one for one in report.metrics if one.metric == INVENTORY), None)
        why = f"{one.end}: {one.message}" if one is not None else "the agent did not report it"
        words = f"the node's inventory could not be read ({why})"
        return Verdict(hardware, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words)
    for name, value in sorted(report.facts.items()):
        counts = name.startswith(OWN) and name.endswith(_UNCORRECTED)
        if counts and value.isascii() and value.isdigit() and int(value[:18]):
            words = f"{name.removeprefix(OWN)} is {value} since the last boot of the node"
            return Verdict(hardware, Outcome.FAIL, Reason.MEMORY_ERRORS, words)
    return Verdict(hardware, Outcome.PASS, Reason.MEETS_REFERENCE, "the inventory was read")


def _judged(hardware: str, runs: Sequence[Measurement], known: HardwareClassStatus) -> Verdict:
    one = runs[0]
    hung = next((run for run in runs if run.end is End.HUNG), None)
    if hung is not None:
        words = f"{one.label}: {hung.message or 'the test process hangs and cannot be killed'}"
        return Verdict(hardware, Outcome.FAIL, Reason.HUNG, words)
    good = [run for run in runs if run.end is End.MEASURED]
    if not good:
        words = f"{one.label}: {runs[-1].end} in {len(runs)} runs: {runs[-1].message}"
        more = len(runs) < metric.RUNS
        return Verdict(hardware, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, again=more)
    if good[0].digests:
        others, right = digests_of(known, one.metric)
        own = [digest for run in good for digest in run.digests]
        verdict = fingerprint.judge(one.row(hardware), own, others, right)
        return _worded(verdict, f"{one.label}: {verdict.words}")
    samples = [run.samples for run in good]
    return metric.judge(one.row(hardware), samples, reference_of(known, one))


def _worded(verdict: Verdict, words: str) -> Verdict:
    return Verdict(
        verdict.subject,
        verdict.outcome,
        verdict.reason,
        words,
        verdict.evidence,
        verdict.again,
        verdict.sticky,
    )


def _message(worst: Verdict, found: Sequence[Verdict]) -> str:
    if worst.outcome is Outcome.PASS:
        return f"{len(found)} tests passed"
    others = sum(1 for one in found if one.outcome is worst.outcome) - 1
    more = f" (and {others} more)" if others else ""
    return f"{worst.reason}: {worst.words}"[: _MOST_WORDS - len(more)] + more


def _finding(verdict: Verdict, one: Measurement | None) -> Finding:
    figures = dict(verdict.evidence)
    return Finding(
        name=(one.label if one is not None else INVENTORY)[:64],
        verdict=NodeVerdict(verdict.outcome.value),
        value=figures.get("median"),
        reference=figures.get("reference median"),
        unit=one.unit[:32] if one is not None else "",
        message=f"{verdict.reason}: {verdict.words}"[:_MOST_WORDS],
    )
