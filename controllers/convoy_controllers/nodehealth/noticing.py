"""Hints that jobs give about a node, such as late input of one rank. The cause may be the node or something
else.

A hint does not count as evidence. Once the node is idle, a sweep can show whether the cause is a slow PCIe
link or a slow data loader.

A hint about a rank with few peers is a suspicion. The node is then not idle while its job runs, so the job
is swapped to a spare node once the slowness has cost as much as the swap will.
"""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.guard.suspicions import CAUSES
from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.record import parse_duration
from convoy_crds.guardpolicy import GuardPolicySpec, Mode
from convoy_crds.nodehealth import NodeHealthStatus, Notice, State

_HINT_STATES = (State.UNVERIFIED, State.QUALIFIED)
"""States in which a hint is stored. In other states the node waits for a sweep or is suspect anyway."""


def with_notice(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    """Return the status with the current hint of a job. In mode Act, a hint that no sweep will test is
    removed. In mode Observe, the hint is only recorded.

    A hint is stored only if it lasts, and if no sweep has tested a hint within `suspectClears`. Without
    this time limit, a slow data loader would cause a sweep whenever its job uses the node.
    """
    known, kept = status.noticed, parse_duration(spec.qualification.suspect_clears)
    stored = status.state in _HINT_STATES and (spec.sweeps is not None or spec.mode is Mode.OBSERVE)
    if known is not None:
        if stored and (status.sweep is not None or now - known.at < kept):
            return status
        return status.model_copy(update={"noticed": None})
    if (
        not stored
        or not facts.agent_connected
        or (status.internal.looked_at is not None and now - status.internal.looked_at < kept)
    ):
        return status
    lasting = [one for one in facts.noticed if evidence.is_evidence(one, spec.detection, now)]
    if not lasting:
        return status
    worst = max(lasting, key=lambda one: one.slowdown)
    found = Notice(job=worst.job, cause=worst.cause, at=now, slowdown=round(worst.slowdown, 3))
    return status.model_copy(update={"noticed": found})


def reason_to_swap(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> str:
    """Return why the jobs on a suspected node should be swapped, so that the node can be tested; empty if
    they should stay.

    The jobs must have saved their state since the suspicion was recorded.
    """
    hint = status.noticed
    if hint is None or hint.cause not in CAUSES or status.state not in _HINT_STATES:
        return ""
    if spec.sweeps is None or status.sweep is not None or not facts.agent_connected or facts.idle:
        return ""
    stays = facts.node is not None and facts.node.unswappable
    if stays or facts.saved is None or facts.saved < hint.at:
        return ""
    cost = evidence.swap_cost(facts, spec)
    for one in facts.noticed:
        lasts = one.job == hint.job and one.cause in CAUSES and evidence.is_evidence(one, spec.detection, now)
        if lasts and one.loss >= cost:
            return f"job {one.job} may have lost {one.loss:.0f} GPU-seconds on it; a swap costs {cost:.0f}"
    return ""
