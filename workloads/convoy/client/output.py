"""Selects the ranks' output by rank and incarnation. Pure.

The launcher puts `[incarnation/rank] ` in front of every line that a rank writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")


def select_lines(lines: Iterable[str], rank: int | None, incarnation: int | None) -> Iterator[str]:
    """Yield the lines of one rank and incarnation. None selects all ranks or all incarnations. If both are
    None, the lines of the launcher are included.
    """
    for line in lines:
        found = PREFIX.match(line)
        if found is None:
            if rank is None and incarnation is None:
                yield line
            continue
        if incarnation is not None and int(found[1]) != incarnation:
            continue
        if rank is not None and int(found[2]) != rank:
            continue
        yield line


def refusal(job: TrainingJob, rank: int | None, incarnation: int | None) -> str | None:
    """Return the reason why the job cannot have output of the rank `rank` in the incarnation `incarnation`;
    None if it can.
    """
    name, formed = job.metadata.name, job.status.incarnation
    if incarnation is not None and not 1 <= incarnation <= formed:
        had = {0: "none yet", 1: "only incarnation 1"}.get(formed, f"incarnations 1 to {formed}")
        return f"{name} has had no incarnation {incarnation}: it had {had}"
    whole = slots(job)
    layout = whole if is_past(job, incarnation) else present(job)
    if rank is not None and not 0 <= rank < (world := world_size(layout)):
        missed = len(whole) - len(layout)
        fewer = f", because it runs without {missed} of its {len(whole)} pods" if missed else ""
        return f"{name} has no rank {rank}: its ranks are 0 to {world - 1}{fewer}"
    return None


def no_pods_reason(job: TrainingJob) -> str:
    """Return the reason why a job has no logs."""
    name = job.metadata.name
    if job.spec.suspend:
        return (
            f"{name} is suspended: its pods and their logs are deleted; `convoy resume {name}` continues it"
        )
    return f"{name} has no pods, and logs are deleted with their pods; `convoy why {name}` explains its state"


def expects_pods(job: TrainingJob) -> bool:
    """Return True if a job that has no pods will get pods without a user's action."""
    return not job.spec.suspend and job.status.phase not in TERMINAL


def is_past(job: TrainingJob, incarnation: int | None) -> bool:
    """Return True if the incarnation is earlier than the job's current one. The ranks of an earlier
    incarnation write no more lines.
    """
    return incarnation is not None and incarnation < job.status.incarnation


def slots_of_rank(job: TrainingJob, rank: int | None, incarnation: int | None = None) -> tuple[Slot, ...]:
    """Return the slots whose pods have the rank; all slots if `rank` is None.

    Without an incarnation, return the slot that has the rank in the current incarnation. For an earlier
    incarnation, return all slots that may have had the rank, because Convoy does not store which slots were
    absent in that incarnation.
    """
    if rank is None:
        return slots(job)
    if is_past(job, incarnation):
        return tuple(
            slot
            for slot, least in zip(slots(job), _least_offsets(job), strict=True)
            if least <= rank < slot.rank_offset + slot.processes
        )
    return tuple(
        slot for slot in present(job) if slot.rank_offset <= rank < slot.rank_offset + slot.processes
    )


def _least_offsets(job: TrainingJob) -> Iterator[int]:
    """Yield, for each slot, the lowest rank that its first process can have. The process has this rank if
    as many earlier slots are absent as the job permits.
    """
    offset = 0
    for role in job.spec.roles:
        if role.independent:
            continue
        fewest = role.min_replicas or role.replicas
        for replica in range(role.replicas):
            yield offset + max(0, replica - (role.replicas - fewest)) * role.processes_per_replica
        offset += fewest * role.processes_per_replica
