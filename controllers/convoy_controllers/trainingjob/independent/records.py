"""The history of an independent slot: its budget, its back-off and its end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from convoy_controllers.views import PodView
from convoy_controllers.workers.faults import Fault
from convoy_controllers.workers.membership import membership
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_independent import Budget, Ending, IndependentRecord

MAX_PAUSE_SECONDS = 60.0
"""Maximum back-off after failures, in seconds."""
MAX_PREEMPTED_PAUSE_SECONDS = 10.0
"""Maximum back-off after preemptions, in seconds. Capacity that comes back must not stay idle for long."""
UNSTARTED_SECONDS = 10.0
"""First back-off, in seconds, after a pod could not start because of its template."""
MAX_EXPLAINED = 8
"""Maximum number of given-up slots whose fault the status has."""
MAX_WHY_CHARS = 512
"""Maximum length of the stored message about the fault that made Convoy give up a slot, in characters."""


def preempted(fault: Fault) -> bool:
    """Return True if the cluster took the pod away. Such a fault never counts as a failure."""
    return not fault.counted or fault.reason is Reasons.POD_LOST


def runs_in(record: IndependentRecord, pod: PodView | None) -> bool:
    """Return True if `pod` is the pod of the slot's present incarnation."""
    return pod is not None and record.pod == membership([pod.uid])


def formed(record: IndependentRecord, pod: PodView, incarnation: int) -> IndependentRecord:
    """Return the record of a slot whose program starts in `pod` now."""
    digest = membership([pod.uid])
    return record.model_copy(update={"pod": digest, "incarnation": incarnation, "not_before": None})


def stopped(record: IndependentRecord) -> IndependentRecord:
    """Return the record of a slot whose program no longer runs, without a fault."""
    if not record.pod:
        return record
    return record.model_copy(update={"pod": ""})


def completed(record: IndependentRecord) -> IndependentRecord:
    """Return the record of a slot whose program exited with code 0."""
    return record.model_copy(update={"ending": Ending.COMPLETED})


def after_fault(record: IndependentRecord, fault: Fault, budget: Budget, now: datetime) -> IndependentRecord:
    """Return the record of a slot after a fault: its incarnation has ended, and the next one waits for the
    back-off. The slot is given up if its budget is spent, or if no restart can heal the fault.
    """
    quiet = record.at is None or now - record.at > timedelta(seconds=budget.window_seconds)
    failures, preemptions = (0, 0) if quiet else (record.failures, record.preemptions)
    if preempted(fault):
        preemptions += 1
        limit = budget.max_preemptions
        spent = limit is not None and preemptions > limit
        pause = _pause(preemptions, MAX_PREEMPTED_PAUSE_SECONDS)
    else:
        failures += 1
        spent = failures > budget.max_restarts
        pause = _pause(failures, MAX_PAUSE_SECONDS)
    if fault.policy.unstarted:
        pause = max(pause, min(UNSTARTED_SECONDS * 2.0 ** (failures - 1), MAX_PAUSE_SECONDS))
    gone = spent or fault.policy.terminal
    return IndependentRecord(
        role=record.role,
        replica=record.replica,
        incarnation=record.incarnation,
        failures=failures,
        preemptions=preemptions,
        at=now.replace(microsecond=0),
        not_before=now + timedelta(seconds=pause) if pause and not gone else None,
        ending=Ending.GIVEN_UP if gone else None,
        reason=fault.reason.name if gone else "",
        why=fault.message[:MAX_WHY_CHARS] if gone else "",
    )


def retried(record: IndependentRecord) -> IndependentRecord:
    """Return the record of a given-up slot with a full budget."""
    if record.ending is not Ending.GIVEN_UP:
        return record
    return IndependentRecord(role=record.role, replica=record.replica, incarnation=record.incarnation)


def kept(found: Iterable[IndependentRecord]) -> list[IndependentRecord]:
    """Return the records for the status: those of slots that have started. Only the first given-up slots
    keep the message of their fault, so that the status stays small.
    """
    stored, explained = [], 0
    for one in found:
        explained += one.ending is Ending.GIVEN_UP
        whole = explained <= MAX_EXPLAINED or not one.why
        if one.pod or one.at or one.ending:
            stored.append(one if whole else one.model_copy(update={"why": ""}))
    return stored


def pause_seconds(record: IndependentRecord, now: datetime) -> float:
    """Return the remaining seconds of back-off."""
    return max(0.0, (record.not_before - now).total_seconds()) if record.not_before else 0.0


def _pause(count: int, longest: float) -> float:
    """Return the back-off in seconds after the fault number `count`: 0, 1, 2, 4 ... `longest`."""
    return min(2.0 ** min(count - 2, 10), longest) if count > 1 else 0.0
