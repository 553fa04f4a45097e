"""What a restart throws away: the work behind the newest checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from convoy_crds.trainingjob_status import TrainingJobStatus


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one restart; None for what is not known."""

    steps: int | None = None
    seconds: float | None = None
    """Age of the newest checkpoint when the fault happened."""


def lost(status: TrainingJobStatus, saves: bool, at: datetime) -> Loss:
    """The loss of a restart that has just been decided.

    `saves`: whether the job has a place for checkpoints; a program that keeps its own says nothing of them.
    `at`: when the fault happened. An incarnation that has made no step loses none.
    """
    if not saves or status.progress is None:
        return Loss()
    if status.checkpoint is None:
        return Loss(status.progress.step)
    age = (at - status.checkpoint.time).total_seconds()
    return Loss(max(0, status.progress.step - status.checkpoint.step), max(0.0, age))
