"""Runs the blocks of an Experiment, until all have ended or the experiment is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.experiment import blocks, cleanup, stops
from convoy_controllers.experiment.draft import Draft
from convoy_crds.experiment_schedule import Block
from convoy_crds.experiment_status import ExperimentPhase
from convoy_crds.reasons.catalogue import Reasons


def advance(draft: Draft, schedule: Sequence[Block]) -> bool:
    """Follow the runs, write the rows of blocks, and start the next runs. Return True if no run is left."""
    blocks.follow(draft, schedule)
    blocks.write_rows(draft, schedule)
    stops.enforce(draft, schedule)
    blocks.limit_messages(draft)
    cleanup.finished_runs(draft)
    stopped = bool(draft.status.internal.stopped)
    if draft.may_start and not stopped:
        blocks.start(draft, schedule)
    blocks.summarize(draft, schedule)
    if stopped or not blocks.open_blocks(draft, schedule):
        return True
    status, active = draft.status, sum(not one.ended for one in draft.status.runs)
    facts = {"done": len(status.blocks), "all": len(schedule), "failed": status.failed_blocks}
    reason = Reasons.BLOCKS_RUNNING
    draft.progress(ExperimentPhase.RUNNING, reason, reason.format(**facts, running=active))
    return False
