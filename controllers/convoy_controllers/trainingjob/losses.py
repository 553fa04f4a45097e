"""Computes the loss of a restart: the work since the newest checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from convoy_crds.trainingjob_status import TrainingJobStatus


@dataclass(frozen=True, slots=True)
class Loss:
    """The work that one restart loses. A value is None if it is not known."""

    steps: int | None = None
    seconds: float | None = None
    """Age in seconds of the newest checkpoint at the time of the fault."""


def lost(status: TrainingJobStatus, saves: bool, at: datetime) -> Loss:
    """Return the loss of a restart that has just been decided.

    `saves` is True if Convoy keeps the job's checkpoints. Convoy does not see checkpoints that a program
    keeps itself. `at` is the time of the fault. An incarnation that made no step loses no step.
    """
    if not saves or status.progress is None:
        return Loss()
    if status.saved is None:
        return Loss(status.progress.step)
    age = (at - status.saved.time).total_seconds()
    return Loss(max(0, status.progress.step - status.saved.step), max(0.0, age))
