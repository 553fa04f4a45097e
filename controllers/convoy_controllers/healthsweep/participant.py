"""One node of a sweep: its progress, and its entry in the sweep's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.guard.sweep.verdict import Outcome
from convoy_controllers.guard.sweep.verdict import Reason as TestReason
from convoy_controllers.guard.sweep.verdict import Verdict as TestVerdict
from convoy_controllers.healthsweep.judging import MOST_FINDINGS, RunAssessment, judge
from convoy_controllers.healthsweep.observed import NodeReport, Order, OrderState, ReportLookup, SweepNode
from convoy_crds.hardwareclass import HardwareClassStatus
from convoy_crds.healthsweep import Finding, HealthSweep, NodeVerdict, Tier
from convoy_crds.nodehealth import Verdict

_MOST_WORDS = 256
_WORST_FIRST = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)


@dataclass(slots=True)
class Participant:
    """One node without a verdict, during one reconcile of its sweep."""

    stored: NodeVerdict
    seen: SweepNode | None
    runs: list[NodeReport] = field(default_factory=list)
    """Reports on the node's finished orders, oldest first."""
    order: Order | None = None
    """The order to send to the node now."""
    waits: str = ""
    """Reason why the node cannot run tests now; empty if it can."""
    ended: str = ""
    """Reason why the node will run no more tests; empty if it may."""
    judged: RunAssessment | None = None

    @property
    def measuring(self) -> bool:
        """Return True if the node's first run is still to come and nothing prevents it."""
        return not self.runs and not self.waits and not self.ended

    @property
    def joins_pairs(self) -> bool:
        """Return True if the node takes part in pair tests. A node that failed its own tests does not."""
        return self.judged is not None and self.judged.verdict is not Verdict.FAIL

    @property
    def hardware_class(self) -> str:
        """Return the name of the node's hardware class; empty before the first run."""
        return self.runs[0].digest if self.runs else ""

    @property
    def words(self) -> str:
        """Return a text that says what the node waits for."""
        if self.waits:
            return self.waits
        if self.judged is not None and self.judged.again:
            return f"tests are repeated: {', '.join(self.judged.again)}"
        return "its tests are running"

    def judge(self, seen: SweepNode, known: HardwareClassStatus, sweep: HealthSweep) -> RunAssessment:
        """Return the assessment of the node's runs so far."""
        return judge(seen.hardware, self.runs, known, node_tests=Tier.L1 in sweep.spec.tiers)

    def pending(self, message: str) -> NodeVerdict:
        """Return the node's entry in the status while it has no verdict."""
        update: dict[str, Any] = {"message": message[:_MOST_WORDS]}
        if self.seen is not None and self.seen.hardware:
            update["hardware"] = self.stored.hardware or self.seen.hardware
        if self.runs:
            update |= {"hardware_class": self.hardware_class, "provenance": self.runs[0].provenance}
        return self.stored.model_copy(update=update)

    def inconclusive(self, why: str, now: datetime) -> NodeVerdict:
        """Return the node's entry in the status with an inconclusive verdict, because it cannot be judged."""
        return self.pending(why).model_copy(update={"verdict": Verdict.INCONCLUSIVE, "at": now})

    def decided(self, assessment: RunAssessment, tier: Tier, now: datetime) -> NodeVerdict:
        """Return the node's entry in the status with the assessment's verdict."""
        update = {
            "verdict": assessment.verdict,
            "at": now,
            "tier": tier,
            "evidence": list(assessment.findings),
        }
        return self.pending(assessment.message).model_copy(update=update)


def follow(
    stored: NodeVerdict,
    seen: SweepNode | None,
    sweep: HealthSweep,
    left: int,
    lookup: ReportLookup,
    known: Mapping[str, HardwareClassStatus],
) -> Participant:
    """Return the progress of a node. `left`: seconds until the sweep's deadline; `known`: hardware classes
    by name.
    """
    one = Participant(stored, seen)
    if seen is None:
        one.ended = "the node no longer exists" if stored.hardware else "there is no node of this name"
    elif stored.hardware and seen.hardware and stored.hardware != seen.hardware:
        one.ended = f"the node now has other hardware: {seen.hardware}"
    else:
        _follow(one, seen, sweep, left, lookup, known)
    return one


def _follow(
    one: Participant,
    seen: SweepNode,
    sweep: HealthSweep,
    left: int,
    lookup: ReportLookup,
    known: Mapping[str, HardwareClassStatus],
) -> None:
    # Every order includes the inventory, because the inventory determines the class.
    tiers = tuple(sorted({Tier.L0.value, *(tier.value for tier in sweep.spec.tiers if tier is not Tier.L2)}))
    probes: tuple[str, ...] = ()
    while True:
        order = Order(seen.name, run_name(sweep, len(one.runs)), tiers, probes, max(1, left))
        report = lookup(seen.name, order.name)
        if report is None or not report.over:
            break
        if report.state is OrderState.CANCELLED:
            one.ended = "its order was cancelled"
            return
        one.runs.append(report)
        its_class = known.get(one.hardware_class)
        probes = one.judge(seen, its_class, sweep).again if its_class is not None else ()
        if not probes:
            return
    _wait(one, seen, order, report)


def _wait(one: Participant, seen: SweepNode, order: Order, report: NodeReport | None) -> None:
    busy = seen.pods > 0 and order.tiers != (Tier.L0.value,)
    if busy and report is not None and report.state is OrderState.RUNNING:
        one.order, one.ended = order, f"{seen.pods} pods of jobs started on it during the tests"
    elif not seen.agent_connected:
        one.waits = "its agent is not connected"
    elif not seen.hardware:
        one.waits = "its agent has not reported its hardware"
    elif busy:
        one.waits = f"waits until {seen.pods} pods of jobs have left it"
    else:
        one.order = order
        one.waits = report.message if report is not None and report.state is OrderState.REFUSED else ""


def prefix(sweep: HealthSweep) -> str:
    """Return the prefix of the names of a sweep's orders. A sweep that is created again under the same name
    gets another prefix.
    """
    return f"{sweep.metadata.name}.{(sweep.metadata.uid or '')[:8]}"


def run_name(sweep: HealthSweep, number: int) -> str:
    """Return the name of the `number`-th order to a node."""
    return f"{prefix(sweep)}.{number}"


def with_pairs(judged: RunAssessment, pair_verdict: TestVerdict | None) -> RunAssessment:
    """Return a node's own assessment combined with its pair verdict. A missing pair verdict means that the
    pair tests did not finish.
    """
    if pair_verdict is None:
        words = "the pair tests did not finish"
        pair_verdict = TestVerdict("", Outcome.INCONCLUSIVE, TestReason.NOT_MEASURED, words)
    verdict = Verdict(pair_verdict.outcome.value)
    if verdict is Verdict.PASS:
        return judged
    message = f"{pair_verdict.reason}: {pair_verdict.words}"[:_MOST_WORDS]
    findings = (Finding(name="pairs", verdict=verdict, message=message), *judged.findings)[:MOST_FINDINGS]
    if _WORST_FIRST.index(judged.verdict) <= _WORST_FIRST.index(verdict):
        return RunAssessment(judged.verdict, judged.message, findings, ())
    return RunAssessment(verdict, message, findings, ())
