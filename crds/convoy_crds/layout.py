"""Layout of a job: its slots, the ranks of each slot, and the ranks' command."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Slot:
    """One pod's place in the job."""

    index: int
    """Position among all pods of the job, in the order of the roles."""
    role: str
    replica: int
    """Position within the role."""
    pod: str
    rank_offset: int
    """Number of the pod's first rank."""
    processes: int
    position: int
    """Position among the slots of the incarnation. Equal to `index` if no slot is absent."""


def slots(job: TrainingJob) -> tuple[Slot, ...]:
    """Return all slots of the job in rank order, with the ranks that they have if no slot is absent."""
    found: list[Slot] = []
    offset = 0
    for role in job.spec.roles:
        for replica in range(role.replicas):
            pod, index = f"{job.metadata.name}-{role.name}-{replica}", len(found)
            found.append(Slot(index, role.name, replica, pod, offset, role.processes_per_replica, index))
            offset += role.processes_per_replica
    return tuple(found)


def without(layout: Iterable[Slot], absent: Collection[tuple[str, int]]) -> tuple[Slot, ...]:
    """Return the slots without the (role, replica) pairs in `absent`. Ranks and positions close up."""
    found: list[Slot] = []
    offset = 0
    for slot in layout:
        if (slot.role, slot.replica) not in absent:
            found.append(replace(slot, rank_offset=offset, position=len(found)))
            offset += slot.processes
    return tuple(found)


def present(job: TrainingJob) -> tuple[Slot, ...]:
    """Return the slots of the current incarnation, which the job's status names."""
    absent = {(role.name, replica) for role in job.status.roles for replica in role.absent}
    return without(slots(job), absent) if absent else slots(job)


def world_size(layout: Iterable[Slot]) -> int:
    """Return the number of ranks in these slots."""
    return sum(slot.processes for slot in layout)


def command(job: TrainingJob, engine: Engine | None, slot: Slot) -> tuple[str, ...]:
    """Return the command line of the slot's ranks: the template's command, or else the engine's.

    Raises ValueError if neither exists.
    """
    template = next(role for role in job.spec.roles if role.name == slot.role).template
    if template and template.spec.containers and template.spec.containers[0].command:
        container = template.spec.containers[0]
        return (*(container.command or ()), *(container.args or ()))
    if engine is None:
        name = f"Engine {job.spec.engine.name!r}" if job.spec.engine else "an engine"
        raise ValueError(
            f"spec.roles[{slot.role}]: the role has no command and {name} is not given: "
            "pass the Engine's manifest or set template.spec.containers[0].command"
        )
    return tuple(engine.spec.command)
