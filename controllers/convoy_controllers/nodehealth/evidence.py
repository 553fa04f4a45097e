"""Evidence against nodes, and the rule for acting on it. Only lasting slowness and failed sweeps count."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from convoy_controllers.nodehealth.observed import HardwareFacts, Suspicion, SweepResult
from convoy_controllers.nodehealth.record import parse_duration
from convoy_crds.guardpolicy import Detection, GuardPolicySpec
from convoy_crds.meta import seconds
from convoy_crds.nodehealth import MOST_EVIDENCE, Evidence, EvidenceKind, NodeHealthStatus
from convoy_crds.reasons.catalogue import Reasons

STALE = timedelta(minutes=2)
"""Time since the detector last reported a suspicion. After this time the suspicion no longer counts."""
WORSE = 1.25
"""Factor by which a job's loss through a node must exceed the stored loss before the new value is stored.
Smaller changes are not written: etcd is not a time series database.
"""


class Case(NamedTuple):
    """Decision whether the evidence permits taking a node out of service, and the reason in words."""

    proven: bool
    why: str = ""


def is_evidence(suspicion: Suspicion, detection: Detection, now: datetime) -> bool:
    """Return True if a suspicion counts as evidence. The node must be slow enough and for long enough, and
    the detector must have reported the suspicion within STALE.
    """
    slow = suspicion.slowdown >= 1 + detection.least_slowdown_percent / 100
    lasting = suspicion.seen - suspicion.since >= parse_duration(detection.lasting)
    return slow and lasting and now - suspicion.seen <= STALE


def gathered(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> list[Evidence]:
    """Return the stored evidence, updated with the detector's suspicions. The evidence stays unchanged
    while the node's agent is not connected.
    """
    if not facts.agent_connected:
        return status.evidence
    known = {(one.kind, one.source): one for one in status.evidence}
    for suspicion in facts.suspicions:
        if is_evidence(suspicion, spec.detection, now):
            key = (EvidenceKind.ONLINE, suspicion.job)
            known[key] = _noted(
                known.get(key), suspicion, parse_duration(spec.qualification.suspect_clears) / 8
            )
    return sorted(known.values(), key=lambda one: one.seen)[-MOST_EVIDENCE:]


def _noted(known: Evidence | None, suspicion: Suspicion, refresh: timedelta) -> Evidence:
    same = known is not None and known.since == suspicion.since
    if (
        known is not None
        and same
        and suspicion.loss < known.loss * WORSE
        and suspicion.seen - known.seen < refresh
    ):
        return known
    return Evidence(
        kind=EvidenceKind.ONLINE,
        source=suspicion.job,
        cause=suspicion.cause,
        since=suspicion.since,
        seen=suspicion.seen,
        loss=round(suspicion.loss, 1),
        forgiven=known.forgiven if known is not None and same else 0.0,
        slowdown=round(suspicion.slowdown, 3),
        message=suspicion.message[:1024],
    )


def with_failed_sweep(evidence: Sequence[Evidence], result: SweepResult) -> list[Evidence]:
    """Return the evidence with a failed sweep added."""
    found = Evidence(
        kind=EvidenceKind.SWEEP,
        source=result.name,
        since=result.at,
        seen=result.at,
        message=result.message[:1024],
        provenance=result.provenance,
    )
    return [*(one for one in evidence if one.source != result.name), found][-MOST_EVIDENCE:]


def forgiven(facts: HardwareFacts) -> list[Evidence]:
    """Return the jobs' suspicions as evidence. All losses so far are forgiven: only later losses count
    against the node.
    """
    known = [_noted(None, one, timedelta(0)) for one in facts.suspicions]
    return [one.model_copy(update={"forgiven": one.loss}) for one in known][-MOST_EVIDENCE:]


def with_passed_sweep(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence after a passed sweep: failed sweeps are removed, and all losses so far are
    forgiven.
    """
    online = [one for one in evidence if one.kind is EvidenceKind.ONLINE]
    return [one.model_copy(update={"forgiven": one.loss}) for one in online]


def unrefuted(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence that no later passed sweep has refuted."""
    return [one for one in evidence if one.kind is EvidenceKind.SWEEP or one.loss > one.forgiven]


def failures(evidence: Sequence[Evidence]) -> int:
    """Return the number of failed sweeps that no later passed sweep has refuted."""
    return sum(1 for one in evidence if one.kind is EvidenceKind.SWEEP)


def last_sign(evidence: Sequence[Evidence]) -> datetime | None:
    """Return the time of the newest evidence; None without evidence."""
    return max((one.seen for one in evidence), default=None)


def case(status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime) -> Case:
    """Return the decision whether the guard may act against the node, and the reason.

    Slowness together with a failed sweep is enough, and so are two failed sweeps. Slowness alone is enough
    while it continues, once the jobs have lost as much as a swap would cost. This is the ski-rental rule:
    the total cost is at most twice the optimum.
    """
    evidence = status.evidence
    sweeps = [one for one in evidence if one.kind is EvidenceKind.SWEEP]
    online = [one for one in evidence if one.kind is EvidenceKind.ONLINE and one.loss > one.forgiven]
    if sweeps and online:
        return Case(True, f"{described(online[-1])}; {described(sweeps[-1])}")
    if len(sweeps) > 1:
        return Case(True, f"the node failed HealthSweeps {sweeps[-2].source} and {sweeps[-1].source}")
    cost = swap_cost(facts, spec)
    lasting = (
        [one for one in facts.suspicions if is_evidence(one, spec.detection, now)]
        if facts.agent_connected
        else []
    )
    forgiven = {one.source: one.forgiven for one in evidence if one.kind is EvidenceKind.ONLINE}
    for suspicion in lasting:
        lost = suspicion.loss - forgiven.get(suspicion.job, 0.0)
        if lost >= cost:
            return Case(
                True, f"job {suspicion.job} lost {lost:.0f} GPU-seconds on it; a swap costs {cost:.0f}"
            )
    return Case(False)


def swap_cost(facts: HardwareFacts, spec: GuardPolicySpec) -> float:
    """Return the GPU-seconds that a swap of the node's jobs costs: the measured cost if a swap has been
    measured. Otherwise the policy's value in seconds counts for each accelerator of the jobs.
    """
    if facts.swap_cost is not None:
        return facts.swap_cost
    return float(seconds(spec.drain.swap_cost) * (facts.node.gpus if facts.node else 1))


def described(one: Evidence) -> str:
    """Return a piece of evidence in words."""
    if one.kind is EvidenceKind.SWEEP:
        return one.message or f"the node failed HealthSweep {one.source}"
    return Reasons.SLOWER_THAN_PEERS.format(
        slowdown=one.slowdown,
        cause=one.cause or "cause unknown",
        source=one.source,
        since=f"{one.since:%Y-%m-%dT%H:%M:%SZ}",
        loss=one.loss,
    )
