"""One node of a sweep: how far it is, and what is written of it."""

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
    """As it is during one look, before it has a verdict."""

    stored: NodeVerdict
    seen: SweepNode | None
    runs: list[NodeReport] = field(default_factory=list)
    """Those that are over, in their order."""
    order: Order | None = None
    """What it is to measure now."""
    waits: str = ""
    """For what, where it cannot measure now."""
    ended: str = ""
    """Why it will not be measured any more."""
    judged: RunAssessment | None = None

    @property
    def measuring(self) -> bool:
        """Whether its first run is about to come."""
        return not self.runs and not self.waits and not self.ended

    @property
    def joins_pairs(self) -> bool:
        """Whether it goes on to be measured with others: what failed alone need not be."""
        return self.judged is not None and self.judged.verdict is not Verdict.FAIL

    @property
    def hardware_class(self) -> str:
        """Empty before the first run."""
        return self.runs[0].digest if self.runs else ""

    @property
    def words(self) -> str:
        """What it waits for."""
        if self.waits:
            return self.waits
        if self.judged is not None and self.judged.again:
            return f"measured once more: {', '.join(self.judged.again)}"
        return "it is being measured"

    def judge(self, seen: SweepNode, known: HardwareClassStatus, sweep: HealthSweep) -> RunAssessment:
        """What its runs so far say."""
        return judge(seen.hardware, self.runs, known, alone=Tier.L1 in sweep.spec.tiers)

    def pending(self, message: str) -> NodeVerdict:
        """What is stored of it while it has no verdict."""
        update: dict[str, Any] = {"message": message[:_MOST_WORDS]}
        if self.seen is not None and self.seen.hardware:
            update["hardware"] = self.stored.hardware or self.seen.hardware
        if self.runs:
            update |= {"hardware_class": self.hardware_class, "provenance": self.runs[0].provenance}
        return self.stored.model_copy(update=update)

    def inconclusive(self, why: str, now: datetime) -> NodeVerdict:
        """What is stored of one that cannot be judged."""
        return self.pending(why).model_copy(update={"verdict": Verdict.INCONCLUSIVE, "at": now})

    def decided(self, said: RunAssessment, tier: Tier, now: datetime) -> NodeVerdict:
        """What is stored of one that is judged."""
        update = {"verdict": said.verdict, "at": now, "tier": tier, "evidence": list(said.findings)}
        return self.pending(said.message).model_copy(update=update)


def follow(
    stored: NodeVerdict,
    seen: SweepNode | None,
    sweep: HealthSweep,
    left: int,
    lookup: ReportLookup,
    known: Mapping[str, HardwareClassStatus],
) -> Participant:
    """How far a node is. `left`: seconds of the sweep's deadline."""
    one = Participant(stored, seen)
    if seen is None:
        one.ended = "the node has gone" if stored.hardware else "there is no such node"
    elif stored.hardware and seen.hardware and stored.hardware != seen.hardware:
        one.ended = f"the node has other hardware now: {seen.hardware}"
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
    # Without an inventory it would be of no class.
    tiers = tuple(sorted({Tier.L0.value, *(tier.value for tier in sweep.spec.tiers if tier is not Tier.L2)}))
    probes: tuple[str, ...] = ()
    while True:
        order = Order(seen.name, run_name(sweep, len(one.runs)), tiers, probes, max(1, left))
        report = lookup(seen.name, order.name)
        if report is None or not report.over:
            break
        if report.state is OrderState.CANCELLED:
            one.ended = "it was cancelled"
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
        one.order, one.ended = order, f"{seen.pods} pods of jobs came onto it while it was measured"
    elif not seen.agent_connected:
        one.waits = "its agent is not heard"
    elif not seen.hardware:
        one.waits = "its agent has not reported its hardware"
    elif busy:
        one.waits = f"{seen.pods} pods of jobs are on it"
    else:
        one.order = order
        one.waits = report.message if report is not None and report.state is OrderState.REFUSED else ""


def prefix(sweep: HealthSweep) -> str:
    """With which the names of a sweep's orders begin. One made again after a deletion has others."""
    return f"{sweep.metadata.name}.{(sweep.metadata.uid or '')[:8]}"


def run_name(sweep: HealthSweep, number: int) -> str:
    """Of the `number`-th order to a node."""
    return f"{prefix(sweep)}.{number}"


def with_pairs(judged: RunAssessment, said: TestVerdict | None) -> RunAssessment:
    """The verdict of a node that was measured with others, too; None when that did not come to its end."""
    if said is None:
        words = "pairs of nodes were not measured to the end"
        said = TestVerdict("", Outcome.INCONCLUSIVE, TestReason.NOT_MEASURED, words)
    verdict = Verdict(said.outcome.value)
    if verdict is Verdict.PASS:
        return judged
    message = f"{said.reason}: {said.words}"[:_MOST_WORDS]
    findings = (Finding(name="pairs", verdict=verdict, message=message), *judged.findings)[:MOST_FINDINGS]
    if _WORST_FIRST.index(judged.verdict) <= _WORST_FIRST.index(verdict):
        return RunAssessment(judged.verdict, judged.message, findings, ())
    return RunAssessment(verdict, message, findings, ())
