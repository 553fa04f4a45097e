"""The changes of a Workload's status that its owner must make.

Each function returns the whole status, so that all changes of one plan travel in one patch. A patch with the
object's version cannot overwrite what Kueue writes at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from convoy_controllers.placement.kueue.admission import DEACTIVATED, condition
from convoy_controllers.placement.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
)

Raw = Mapping[str, Any]
MAX_MESSAGE = 32_768
"""Maximum length of a condition's message."""
_AT_ONCE = (PREEMPTED, "NodeFailures")
"""Reasons of evictions after which Kueue queues a Workload again at once."""
_NOT_READY = ("WaitForStart", "Not all pods are ready or succeeded")
_LOST = ("WaitForRecovery", "At least one pod has failed, waiting for recovery")
_READY = ("Started", "All pods reached readiness and the workload is running")
_RECOVERED = ("Recovered", "All pods reached readiness and the workload is running again")


def cleared(raw: Raw, now: datetime) -> dict[str, Any]:
    """Return the status without the reservation, after an eviction and the end of all pods.

    Kueue itself never clears it. All parts must change together: Kueue frees the quota only if Admitted
    becomes False too, and its webhook fails on QuotaReserved without an admission.
    """
    evicted = condition(raw, EVICTED)
    reason, message = str(evicted.get("reason") or ""), str(evicted.get("message") or "")
    if reason.startswith(DEACTIVATED):
        # Kueue queues a Workload again after its activation only if this is the exact reason.
        reason = DEACTIVATED
    status = {
        name: value
        for name, value in (raw.get("status") or {}).items()
        if name not in ("admission", "reclaimablePods")
    }
    found = _with(
        raw, _conditions(raw), Wanted(REQUEUED, reason in _AT_ONCE, reason or "Pending", message), now
    )
    found = _with(raw, found, Wanted(QUOTA_RESERVED, False, "Pending", message), now)
    found = _with(
        raw, found, Wanted(ADMITTED, False, "NoReservation", "The workload has no reservation"), now
    )
    return {**status, "conditions": _with(raw, found, Wanted(PODS_READY, False, *_NOT_READY), now)}


def with_ready(raw: Raw, ready: bool, now: datetime) -> dict[str, Any]:
    """Return the status with the condition PodsReady. Its reason says whether the pods were ready before,
    because Kueue has a time limit for each.
    """
    known = condition(raw, PODS_READY)
    was, reason = known.get("status") == "True", str(known.get("reason") or "")
    if ready and was:
        return dict(raw.get("status") or {})
    if ready:
        words = _RECOVERED if reason == _LOST[0] else _READY
    elif was or reason == _LOST[0]:
        words = _LOST
    else:
        words = _NOT_READY
    if known and known.get("status") == str(ready) and reason == words[0]:
        return dict(raw.get("status") or {})
    fresh = _with(raw, _conditions(raw), Wanted(PODS_READY, ready, *words), now)
    return {**(raw.get("status") or {}), "conditions": fresh}


def with_reclaimable(raw: Raw, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the status with the pods that need no quota any more. Their number never falls, because Kueue
    may already have given the quota to others.
    """
    status = dict(raw.get("status") or {})
    stored = {str(one["name"]): int(one["count"]) for one in status.get("reclaimablePods") or ()}
    merged = {name: max(stored.get(name, 0), counts.get(name, 0)) for name in {**stored, **counts}}
    found = [{"name": name, "count": count} for name, count in sorted(merged.items()) if count]
    if merged != stored and found:
        status["reclaimablePods"] = found
    return status


def finished(raw: Raw, succeeded: bool, message: str, now: datetime) -> dict[str, Any]:
    """Return the status of a Workload whose job has ended. It frees the quota."""
    if condition(raw, FINISHED).get("status") == "True":
        return dict(raw.get("status") or {})
    reason = "Succeeded" if succeeded else "Failed"
    fresh = _with(raw, _conditions(raw), Wanted(FINISHED, True, reason, message), now)
    return {**(raw.get("status") or {}), "conditions": fresh}


def _conditions(raw: Raw) -> list[Raw]:
    return list((raw.get("status") or {}).get("conditions") or ())


class Wanted(NamedTuple):
    """A condition to set."""

    type: str
    holds: bool
    reason: str
    message: str


def _with(raw: Raw, known: Sequence[Raw], wanted: Wanted, now: datetime) -> list[Raw]:
    """Return the conditions with the wanted one. Its time changes only with its status."""
    old = next((one for one in known if one.get("type") == wanted.type), None)
    text = "True" if wanted.holds else "False"
    time = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    if old is not None and old.get("status") == text:
        time = str(old["lastTransitionTime"])
    fresh = {
        "type": wanted.type,
        "status": text,
        "reason": wanted.reason,
        "message": wanted.message[:MAX_MESSAGE],
        "observedGeneration": int((raw.get("metadata") or {}).get("generation") or 0),
        "lastTransitionTime": time,
    }
    if old is None:
        return [*known, fresh]
    return [fresh if one is old else one for one in known]
