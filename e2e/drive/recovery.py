"""Computes the stages of a recovery from a recorded watch of the job and its pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds.trainingjob_status import has_formed
from e2e.drive.job_watch import JobWatch, ObservedState


def moment(text: str) -> float:
    """Return an RFC 3339 time in Unix seconds."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True)
class Recovery:
    """Stages of a recovery, as seconds from the fault to each stage; None for a stage that did not occur."""

    reason: str
    fault_at: float
    """Time of the fault in Unix seconds."""
    decided: float
    """Seconds from the fault until the operator decided to restart, by the operator's clock."""
    deleted: float | None
    """Seconds from the fault until the last of the faulty pods was deleted."""
    created: float | None
    scheduled: float | None
    running: float | None
    """Seconds from the fault until the last replacement pod was Running."""
    formed: float | None
    stepped: float
    """Seconds from the fault until the next incarnation's first step ended, by the ranks' clocks."""
    replaced: int
    """Number of replaced pods."""
    incarnations: int
    """Number of times that the process group formed after the fault."""
    restored: float | None = None
    """Seconds that rank 0 took to read its checkpoint; None if not measured."""


def recovery(watch: JobWatch, fault_at: float, before: set[str], incarnation: int) -> Recovery:
    """Return the stages of a finished recovery.

    `before` holds the uids of the job's pods at the time of the fault. `incarnation` is the job's
    incarnation at the time of the fault.
    """
    fresh = [states for uid, states in watch.pods.items() if uid not in before and states[0].at >= fault_at]
    old = [states for uid, states in watch.pods.items() if uid in before]

    def latest(pick: Callable[[dict[str, Any]], Any]) -> float | None:
        moments = [next((s.at for s in states if pick(s.body)), None) for states in fresh]
        known = [found for found in moments if found is not None]
        return max(known) - fault_at if known else None

    deletions = [s.at for states in old for s in states if s.deleted and s.at >= fault_at]
    ledger = watch.status["goodput"]
    last = watch.status["restarts"]["last"]
    formed = [s.at for s in watch.job if s.at >= fault_at and _formed(s, watch.status["incarnation"])]
    return Recovery(
        reason=last["reason"],
        fault_at=fault_at,
        decided=moment(last["at"]) - fault_at,
        deleted=max(deletions) - fault_at if deletions else None,
        created=latest(lambda body: True),
        scheduled=latest(lambda body: body["spec"].get("nodeName")),
        running=latest(lambda body: body["status"].get("phase") == "Running"),
        formed=min(formed) - fault_at if formed else None,
        stepped=moment(ledger["since"]) - fault_at,
        replaced=len(fresh),
        incarnations=watch.status["incarnation"] - incarnation,
    )


def _formed(state: ObservedState, incarnation: int) -> bool:
    status = state.body.get("status") or {}
    return status.get("incarnation") == incarnation and has_formed(status)
