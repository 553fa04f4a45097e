"""Records the nodes that are blamed for faults of a job, across incarnations. New pods avoid nodes that are
blamed repeatedly.
"""

from __future__ import annotations

from datetime import datetime

from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import Offender

MOST = 64


def after(offenders: list[Offender], node: str, reason: str, now: datetime) -> list[Offender]:
    """Return the record with one more fault of `node`. If the record is full, the nodes with the oldest
    faults are dropped.
    """
    before = next((entry.faults for entry in offenders if entry.node == node), 0)
    others = [entry for entry in offenders if entry.node != node]
    fresh = Offender(node=node, faults=before + 1, reason=reason, at=now)
    return sorted([*others, fresh], key=lambda entry: entry.at)[-MOST:]


def avoided(offenders: list[Offender], recovery: Recovery) -> tuple[str, ...]:
    """Return the nodes that new pods of the job should avoid if other nodes are available."""
    limit = recovery.avoid_repeat_offenders
    return tuple(sorted(entry.node for entry in offenders if limit and entry.faults >= limit))
