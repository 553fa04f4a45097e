"""Starts runs in the order of the schedule, and writes the row of each block whose runs have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from convoy_controllers.experiment import arms, faults, runs, steps
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import load_name
from convoy_crds.experiment_schedule import Block
from convoy_crds.experiment_status import Achieved, BlockStatus, RunStatus

MAX_RECORDS = 256
"""Maximum number of runs in `status.runs`."""
MAX_MESSAGE_BYTES = 24 * 1024
"""Maximum bytes of all messages of failed runs as JSON. They pass to the analysis in the environment of a
pod, together with the plan and all figures.
"""
Records = Mapping[tuple[int, str], RunStatus]
"""The record of each run that has started, by block and name of the run."""


def records(draft: Draft) -> Records:
    """Return the records of the runs in the status."""
    return {(one.block, one.arm): one for one in draft.status.runs}


def open_blocks(draft: Draft, schedule: Sequence[Block]) -> list[Block]:
    """Return the blocks that have not ended, in the order of the schedule."""
    ended = {one.id for one in draft.status.blocks}
    return [block for block in schedule if block.id not in ended]


def follow(draft: Draft, schedule: Sequence[Block]) -> None:
    """Follow all runs that have started and not ended."""
    known = records(draft)
    draft.places = draft.spec.parallelism - len(_live(draft))
    for block in open_blocks(draft, schedule):
        for run in arms.runs(draft.spec, block) if _has_started(block, known) else ():
            record = known.get((block.id, run.label))
            if record is not None and not record.ended:
                runs.follow(draft, run, record)
                faults.follow(draft, run, record)
                if record.ended:
                    faults.finish(draft, run, record)


def start(draft: Draft, schedule: Sequence[Block]) -> None:
    """Start the next runs in the order of the schedule, as far as `spec.parallelism` allows."""
    known = records(draft)
    free = draft.spec.parallelism - occupied(draft)
    for block in open_blocks(draft, schedule):
        for run in arms.runs(draft.spec, block):
            if free <= 0 or len(draft.status.runs) >= MAX_RECORDS:
                return
            if (block.id, run.label) not in known:
                record = runs.started(draft, run)
                draft.status.runs.append(record)
                runs.follow(draft, run, record)
                free -= 1


def occupied(draft: Draft) -> int:
    """Return the number of runs whose jobs have not ended, including those of replaced attempts."""
    named = {name for one in draft.status.runs for name in (one.name, load_name(one.name))}
    others = [job for job in draft.observed.jobs.values() if job.name not in named and not job.ended]
    return sum(runs.occupies(draft, one) for one in draft.status.runs) + len(others)


def _live(draft: Draft) -> list[str]:
    """Return the names of the runs, current or replaced, whose jobs have not ended."""
    loads = {load_name(one.name) for one in draft.status.runs}
    named = loads | {steps.name_of(draft, one) for one in draft.status.internal.steps}
    return [job.name for job in draft.observed.jobs.values() if not job.ended and job.name not in named]


def write_rows(draft: Draft, schedule: Sequence[Block]) -> None:
    """Write the row of each block whose runs have all ended."""
    known = records(draft)
    for block in open_blocks(draft, schedule):
        of_block = [known.get((block.id, label)) for label in block.labels]
        ended = [one for one in of_block if one is not None and one.ended]
        if len(ended) == len(block.labels):
            draft.status.blocks.append(row(block, ended))


def limit_messages(draft: Draft) -> None:
    """Remove those messages of failed runs that exceed MAX_MESSAGE_BYTES. The earlier ones stay as they are,
    and each failure keeps its reason.
    """
    left = MAX_MESSAGE_BYTES
    for failure in (one for block in draft.status.blocks for one in block.failures):
        size = len(json.dumps(failure.message)) if failure.message else 0
        if size > left:
            failure.message = ""
        else:
            left -= size


def row(block: Block, ended: Sequence[RunStatus]) -> BlockStatus:
    """Return the row of a block whose runs have ended."""
    starts = [one.start_time for one in ended if one.start_time is not None]
    ends = [one.completion_time for one in ended if one.completion_time is not None]
    return BlockStatus(
        id=block.id,
        perturbation=block.cell.perturbation,
        magnitude=block.cell.magnitude,
        repetition=block.repetition,
        seed=block.seed,
        arms=list(block.labels),
        figures=[figure for one in ended for figure in one.figures],
        failures=[one.failure for one in ended if one.failure is not None],
        achieved=[Achieved(arm=one.arm, magnitude=one.achieved) for one in ended if one.achieved is not None],
        start_time=min(starts, default=None),
        completion_time=max(ends, default=None),
    )


def summarize(draft: Draft, schedule: Sequence[Block]) -> None:
    """Set the numbers of blocks that `kubectl get` shows."""
    status, done = draft.status, len(draft.status.blocks)
    status.progress = f"{done}/{len(schedule)}"
    status.percent = 100 * done // len(schedule) if schedule else 0
    status.failed_blocks = sum(one.failed for one in status.blocks)


def _has_started(block: Block, known: Records) -> bool:
    return any((block.id, label) in known for label in block.labels)
