"""Decides whether an experiment stops before all its blocks have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from convoy_controllers.experiment import blocks, outcomes, runs
from convoy_controllers.experiment.draft import Draft
from convoy_crds.experiment_schedule import Block
from convoy_crds.experiment_status import BlockStatus, RunStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType


def enforce(draft: Draft, schedule: Sequence[Block]) -> None:
    """Stop all runs if there is a reason to. A block in which a run has ended gets a row, so that no result
    is lost.
    """
    internal, left = draft.status.internal, blocks.open_blocks(draft, schedule)
    if not internal.stopped and (found := _reason(draft, len(schedule))) is not None and left:
        internal.stopped = found[0].name
        draft.event(*found)
        draft.condition(ConditionType.STOPPED_EARLY, True, *found)
    if not internal.stopped:
        return
    known = blocks.records(draft)
    for block in left:
        of_block = {label: known.get((block.id, label)) for label in block.labels}
        keep = any(map(_has_result, of_block.values()))
        for record in of_block.values():
            if record is not None and not record.ended:
                runs.end(draft, record, outcomes.failure(record.arm, Reasons.RUN_STOPPED))
        if keep:
            draft.status.blocks.append(_row(block, of_block.values()))


def too_many_failed(draft: Draft) -> str:
    """Return the message for too many failed blocks; empty if there are not too many."""
    failed, limit = [one for one in draft.status.blocks if _failed_itself(one)], draft.spec.max_failed_blocks
    if len(failed) <= limit:
        return ""
    last = failed[-1].failures[-1]
    reason, why = Reasons.TOO_MANY_FAILED_BLOCKS, last.message or last.reason
    return reason.format(failed=len(failed), limit=limit, block=failed[-1].id, arm=last.arm, why=why)


def _reason(draft: Draft, planned: int) -> tuple[Reason, str] | None:
    """Return the reason to stop, and its message; None if runs may start. `planned`: number of blocks."""
    spec, start = draft.spec, draft.status.start_time
    facts = {"done": len(draft.status.blocks), "all": planned}
    if message := too_many_failed(draft):
        return Reasons.TOO_MANY_FAILED_BLOCKS, message
    if spec.stop:
        return Reasons.EXPERIMENT_STOPPED, Reasons.EXPERIMENT_STOPPED.format(**facts)
    if spec.active_deadline_seconds is not None and start is not None:
        left = (start + timedelta(seconds=spec.active_deadline_seconds) - draft.exact).total_seconds()
        if left <= 0:
            reason = Reasons.EXPERIMENT_DEADLINE
            return reason, reason.format(seconds=spec.active_deadline_seconds, **facts)
        draft.requeue(left)
    return None


def _row(block: Block, of_block: Iterable[RunStatus | None]) -> BlockStatus:
    """Return the row of a block that was stopped. Runs that had not started count as stopped too."""
    there = [one for one in of_block if one is not None]
    absent = set(block.labels) - {one.arm for one in there}
    found = blocks.row(block, there)
    found.failures += [outcomes.failure(label, Reasons.RUN_STOPPED) for label in sorted(absent)]
    return found


def _has_result(record: RunStatus | None) -> bool:
    if record is None or not record.ended:
        return False
    return record.failure is None or record.failure.reason != Reasons.RUN_STOPPED.name


def _failed_itself(block: BlockStatus) -> bool:
    """Return True if a block failed by itself, not because the experiment was stopped."""
    return any(one.reason != Reasons.RUN_STOPPED.name for one in block.failures)
