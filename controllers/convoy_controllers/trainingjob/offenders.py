"""Nodes that a job's faults are laid to, remembered across incarnations and avoided once they repeat."""

from __future__ import annotations

from datetime import datetime

from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import Offender

MOST = 64


def after(offenders: list[Offender], node: str, reason: str, now: datetime) -> list[Offender]:
    """The record with one more fault of `node`; the ones longest quiet make room."""
    before = next((entry.faults for entry in offenders if entry.node == node), 0)
    others = [entry for entry in offenders if entry.node != node]
    fresh = Offender(node=node, faults=before + 1, reason=reason, at=now)
    return sorted([*others, fresh], key=lambda entry: entry.at)[-MOST:]


def avoided(offenders: list[Offender], recovery: Recovery) -> tuple[str, ...]:
    """Nodes that further pods of the job are kept away from, where others will do."""
    limit = recovery.avoid_repeat_offenders
    return tuple(sorted(entry.node for entry in offenders if limit and entry.faults >= limit))
