"""Selects the ranks' output by rank, incarnation and pod. Pure.

The launcher puts `[incarnation/rank] ` in front of every line that a rank writes. Pods of Independent roles
have groups of their own, whose numbers say nothing about the job's group, so the client also puts
`[role-number] ` in front of their lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convoy_crds.layout import Slot, independent_slots, present, slots, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")


@dataclass(frozen=True, slots=True)
class Selection:
    """The lines to read. None selects all."""

    rank: int | None = None
    incarnation: int | None = None
    role: str | None = None
    replica: str | None = None
    """A pod: its name, or the name of its role and its number within the role, such as `spot-0`."""


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


def refusal_of_pods(job: TrainingJob, wanted: Selection) -> str | None:
    """Return the reason why the job cannot have pods of the role or the replica; None if it can."""
    name, role, replica = job.metadata.name, wanted.role, wanted.replica
    if role is None and replica is None:
        return None
    if role is not None and replica is not None:
        return "choose a role or a replica, not both"
    if wanted.rank is not None:
        return f"rank {wanted.rank} is in one pod: choose it without a role or a replica"
    roles = [one.name for one in job.spec.roles]
    if role is not None and role not in roles:
        return f"{name} has no role {role!r}: its roles are {', '.join(roles)}"
    found = slots_to_read(job, wanted)
    if replica is not None and not found:
        return f"{name} has no replica {replica!r}: write ROLE-NUMBER, such as {roles[-1]}-0"
    if wanted.incarnation is not None and any(slot.alone for slot in found):
        return f"role {found[0].role} is Independent: its pods take no part in the job's incarnations"
    return None


def no_pods_reason(job: TrainingJob, wanted: Selection | None = None) -> str:
    """Return the reason why a job has no logs, or none of the wanted pods."""
    name = job.metadata.name
    if wanted and (which := wanted.replica or wanted.role) and not job.spec.suspend:
        kind = "replica" if wanted.replica else "role"
        return (
            f"{kind} {which} of {name} has no pod now, and logs are deleted with their pods; `convoy why "
            f"{name}` explains its state"
        )
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


def slots_to_read(job: TrainingJob, wanted: Selection) -> tuple[Slot, ...]:
    """Return the slots whose pods may have written wanted lines."""
    if wanted.role is not None or wanted.replica is not None:
        return tuple(slot for slot in _all_slots(job) if _matches(slot, wanted.role, wanted.replica))
    if wanted.rank is None and wanted.incarnation is None:
        return _all_slots(job)
    return slots_of_rank(job, wanted.rank, wanted.incarnation)


def prefix_of(slot: Slot) -> str:
    """Return the text to put in front of the lines of a slot's pod."""
    return f"[{short_name(slot)}] " if slot.alone else ""


def short_name(slot: Slot) -> str:
    """Return the name of a slot within its job, such as `spot-0`."""
    return f"{slot.role}-{slot.replica}"


def _all_slots(job: TrainingJob) -> tuple[Slot, ...]:
    return (*slots(job), *independent_slots(job))


def _matches(slot: Slot, role: str | None, replica: str | None) -> bool:
    return slot.role == role or replica in (short_name(slot), slot.pod)


def slots_of_rank(job: TrainingJob, rank: int | None, incarnation: int | None = None) -> tuple[Slot, ...]:
    """Return the slots whose pods have the rank; all slots if `rank` is None.

    Without an incarnation, return the slot that has the rank in the current incarnation. For an earlier
    incarnation, return all slots that may have had the rank, because Convoy does not store which slots were
    absent in that incarnation, or their order.
    """
    if rank is None:
        return slots(job)
    if is_past(job, incarnation):
        near = [
            slot
            for slot, least in zip(slots(job), _least_offsets(job), strict=True)
            if least <= rank < slot.rank_offset + slot.processes
        ]
        if not job.spec.placement.topology_keys:
            return tuple(near)
        # The ranks of a role may have had another order.
        roles = {slot.role for slot in near}
        return tuple(slot for slot in slots(job) if slot.role in roles)
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
        fewest = role.least
        for replica in range(role.replicas):
            yield offset + max(0, replica - (role.replicas - fewest)) * role.processes_per_replica
        offset += fewest * role.processes_per_replica
