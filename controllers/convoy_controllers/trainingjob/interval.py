"""Decides the save interval of a job. It is the interval of the spec or, under `Auto`, follows from the
cost of saves and the rate of failures. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from convoy_controllers.checkpoint.interval import choose, failure_rate
from convoy_controllers.views import SlotView
from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import UNMEASURED_SECONDS
from convoy_crds.trainingjob_status import ChosenInterval, TrainingJobStatus

UNMEASURED = "nothing measured yet"
STEADY = 0.2
"""Minimum relative change of the interval for the status to be updated."""
_RUNNING = (Cause.PRODUCTIVE, Cause.RECOMPUTE, Cause.CHECKPOINT, Cause.STRAGGLER)
"""Causes of the ledger under which ranks make steps."""


def decided(job: TrainingJob, status: TrainingJobStatus, views: Iterable[SlotView]) -> ChosenInterval | None:
    """Return the interval for the status of a job under `Auto`; None for a job whose spec has a fixed
    interval.

    `status` must already contain the progress from `views`. Only saves of the current incarnation count.
    The cost of a save is the longest stall that any rank measured. Without a measurement, the interval does
    not change.
    """
    if not job.spec.checkpoint.automatic:
        return None
    kept = _kept(status)
    ranks = [rank for view in views if view.incarnation == status.incarnation for rank in view.ranks]
    cost = max((rank.save_seconds for rank in ranks), default=0.0)
    if not cost:
        return kept
    busy = max(rank.copy_seconds for rank in ranks)
    found = choose(cost, failure_rate(status.restarts.total, training_hours(status)), busy)
    fresh = ChosenInterval(seconds=math.ceil(found.seconds), reason=found.reason)
    near = fresh.seconds == kept.seconds or abs(found.seconds - kept.seconds) < STEADY * kept.seconds
    return kept if near and kept.reason != UNMEASURED else fresh


def assigned_seconds(job: TrainingJob, status: TrainingJobStatus) -> int:
    """Return the save interval in seconds to send to the agent of slot 0; 0 for the pods' own setting."""
    kept = _kept(status)
    return kept.seconds if job.spec.checkpoint.automatic and kept.reason != UNMEASURED else 0


def seconds(job: TrainingJob, status: TrainingJobStatus) -> int:
    """Return the save interval in seconds: under `Auto` that of the status, otherwise that of the spec."""
    return _kept(status).seconds if job.spec.checkpoint.automatic else job.spec.checkpoint.interval_seconds


def described(job: TrainingJob, status: TrainingJobStatus) -> str:
    """Return the save interval as text. Under `Auto`, the text contains the reason."""
    if not job.spec.checkpoint.automatic:
        return job.spec.checkpoint.interval
    kept = _kept(status)
    return f"{kept.seconds} s (Auto: {kept.reason})"


def _kept(status: TrainingJobStatus) -> ChosenInterval:
    known = status.checkpoint.interval if status.checkpoint else None
    return known or ChosenInterval(seconds=UNMEASURED_SECONDS, reason=UNMEASURED)


def training_hours(status: TrainingJobStatus) -> float:
    """Return the hours in which ranks made steps, up to the newest report. The result changes only with a
    new report.
    """
    reported_at = status.progress.time if status.progress else None
    found = totals(status.goodput, reported_at) if reported_at else status.goodput.seconds
    return sum(found.get(cause.value, 0.0) for cause in _RUNNING) / 3600
