"""What the ranks of a job wrote, told apart by rank and incarnation.

The launcher puts `[incarnation/rank] ` before every line that a rank writes. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
MAX_PODS = 64
"""Logs read at once."""


def select_lines(lines: Iterable[str], rank: int | None, incarnation: int | None) -> Iterator[str]:
    """The lines of one rank and incarnation; None takes all, and then the launcher's own lines too."""
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
    """Why there can be no such line; None when there may be one."""
    name, formed = job.metadata.name, job.status.incarnation
    if incarnation is not None and not 1 <= incarnation <= formed:
        had = {0: "none yet", 1: "incarnation 1 alone"}.get(formed, f"incarnations 1 to {formed}")
        return f"{name} has had no incarnation {incarnation}: it had {had}"
    whole = slots(job)
    layout = whole if is_past(job, incarnation) else present(job)
    if rank is not None and not 0 <= rank < (world := world_size(layout)):
        missed = len(whole) - len(layout)
        fewer = f", as it runs without {missed} of its {len(whole)} pods" if missed else ""
        return f"{name} has no rank {rank}: its ranks are 0 to {world - 1}{fewer}"
    return None


def no_pods_reason(job: TrainingJob) -> str:
    """Why a job has no logs."""
    name = job.metadata.name
    if job.spec.suspend:
        return f"{name} is suspended: its logs went with its pods; `convoy resume {name}` runs it on"
    return f"{name} has no pods now, and logs go with their pods; ask `convoy why {name}`"


def expects_pods(job: TrainingJob) -> bool:
    """Whether pods come by themselves where there are none."""
    return not job.spec.suspend and job.status.phase not in TERMINAL


def is_past(job: TrainingJob, incarnation: int | None) -> bool:
    """Whether it is an incarnation before the job's present one: its ranks write no more."""
    return incarnation is not None and incarnation < job.status.incarnation


def slots_of_rank(job: TrainingJob, rank: int | None, incarnation: int | None = None) -> tuple[Slot, ...]:
    """The slots whose pods have the rank; all for None.

    Without an incarnation, where the rank is now. Which slots an earlier one was without is not known: then
    all that may have had the rank.
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
    """The first rank of each slot when as many as may be absent before it are so."""
    offset = 0
    for role in job.spec.roles:
        fewest = role.min_replicas or role.replicas
        for replica in range(role.replicas):
            yield offset + max(0, replica - (role.replicas - fewest)) * role.processes_per_replica
        offset += fewest * role.processes_per_replica
