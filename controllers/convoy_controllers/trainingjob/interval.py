"""How often a job saves: by its spec, or under `Auto` by what saves cost and how often it fails. Pure."""

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
"""An interval that differs from the one in the status by less than this share of it is no change."""
_RUNNING = (Cause.PRODUCTIVE, Cause.RECOMPUTE, Cause.CHECKPOINT, Cause.STRAGGLER)
"""Causes of the ledger under which ranks make steps."""


def decided(job: TrainingJob, status: TrainingJobStatus, views: Iterable[SlotView]) -> ChosenInterval | None:
    """What is to stand in the status of a job under `Auto`; None for a job whose spec names a time.

    `status`: with the progress that `views` tell; its incarnation is the one whose saves count. What they
    cost is the greatest of what its ranks measured; without that the interval stays what it was.
    """
    if not job.spec.checkpoint.automatic:
        return None
    kept = _kept(status)
    ranks = [rank for view in views if view.incarnation == status.incarnation for rank in view.ranks]
    cost = max((rank.save_seconds for rank in ranks), default=0.0)
    if not cost:
        return kept
    busy = max(rank.copy_seconds for rank in ranks)
    found = choose(cost, failure_rate(status.restarts.total, _training_hours(status)), busy)
    fresh = ChosenInterval(seconds=math.ceil(found.seconds), reason=found.reason)
    near = fresh.seconds == kept.seconds or abs(found.seconds - kept.seconds) < STEADY * kept.seconds
    return kept if near and kept.reason != UNMEASURED else fresh


def assigned_seconds(job: TrainingJob, status: TrainingJobStatus) -> int:
    """Seconds between two saves that the agent of slot 0 is to know of; 0: what the pods began with."""
    kept = _kept(status)
    return kept.seconds if job.spec.checkpoint.automatic and kept.reason != UNMEASURED else 0


def seconds(job: TrainingJob, status: TrainingJobStatus) -> int:
    """The interval."""
    return _kept(status).seconds if job.spec.checkpoint.automatic else job.spec.checkpoint.interval_seconds


def described(job: TrainingJob, status: TrainingJobStatus) -> str:
    """The interval for people; under `Auto` with its reason."""
    if not job.spec.checkpoint.automatic:
        return job.spec.checkpoint.interval
    kept = _kept(status)
    return f"{kept.seconds} s (Auto: {kept.reason})"


def _kept(status: TrainingJobStatus) -> ChosenInterval:
    known = status.checkpoint.interval if status.checkpoint else None
    return known or ChosenInterval(seconds=UNMEASURED_SECONDS, reason=UNMEASURED)


def _training_hours(status: TrainingJobStatus) -> float:
    """Return the hours in which ranks made steps, up to the newest report."""
    reported_at = status.progress.time if status.progress else None
    found = totals(status.goodput, reported_at) if reported_at else status.goodput.seconds
    return sum(found.get(cause.value, 0.0) for cause in _RUNNING) / 3600
