"""Restores the newest checkpoint into the training state."""

from __future__ import annotations

from typing import Any

from convoy_workloads.runtime.checkpointer import Checkpointer
from convoy_workloads.runtime.generation import Record
from convoy_workloads.runtime.state import TrainingState


def restore_newest(
    checkpoints: Checkpointer, training: TrainingState, model: Any, optimizer: Any
) -> Record | None:
    """Load the newest readable checkpoint. Return its record; None if the job starts at step 0."""
    record = checkpoints.choose(model, optimizer, training.allocate_optimizer_state)
    if record is None:
        training.release_optimizer_state()
        return None
    return _load(checkpoints, training, record, model, optimizer)


def _load(
    checkpoints: Checkpointer, training: TrainingState, record: Record, model: Any, optimizer: Any
) -> Record:
    """Load the chosen checkpoint, or its full save if the replay is inexact. Return the loaded record."""
    while True:
        training.allocate_optimizer_state()
        state = training.load_target()
        journal = checkpoints.journal
        checkpoints.load(state, record)
        training.apply(state, record.world)
        if journal is None:
            return record
        if journal.replay(model, optimizer):
            break
        record = journal.discard_journal()
        optimizer.state.clear()  # Remove state that only the replay has created.
    state = training.load_target()
    journal.overlay(state)
    training.apply(state, record.world)
    return record
