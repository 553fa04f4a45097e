"""What a job sees of a node that may lie in it and need not, such as input that comes late to one rank.

Nothing is held against the node; but a sweep of it, once it is idle, tells a slow PCIe from a slow loader.
"""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.record import length
from convoy_crds.guardpolicy import GuardPolicySpec, Mode
from convoy_crds.nodehealth import NodeHealthStatus, Notice, State

_OPEN = (State.UNVERIFIED, State.QUALIFIED)
"""Others are on their way to a sweep, or suspect anyway."""


def with_notice(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    """The status with what is seen now, if that lasts and no sweep has looked into such a thing lately: a
    slow loader comes with its job again and again. Without what no sweep will look into.
    """
    known, kept = status.noticed, length(spec.qualification.suspect_clears)
    sweeps = spec.sweeps is not None and spec.mode is Mode.ACT and status.state in _OPEN
    if known is not None:
        if sweeps and (status.sweep is not None or now - known.at < kept):
            return status
        return status.model_copy(update={"noticed": None})
    if (
        not sweeps
        or not facts.agent_connected
        or (status.looked_at is not None and now - status.looked_at < kept)
    ):
        return status
    lasting = [one for one in facts.noticed if evidence.counts(one, spec.detection, now)]
    if not lasting:
        return status
    worst = max(lasting, key=lambda one: one.slowdown)
    found = Notice(job=worst.job, cause=worst.cause, at=now, slowdown=round(worst.slowdown, 3))
    return status.model_copy(update={"noticed": found})
