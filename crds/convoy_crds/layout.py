"""Which slot of the job each pod is, which ranks it holds, and what they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Slot:
    """One pod's place in the job."""

    index: int
    """Position among all pods of the job, roles in order."""
    role: str
    replica: int
    """Position within the role."""
    pod: str
    rank_offset: int
    """The first of its ranks."""
    processes: int
    position: int
    """Place among the slots of the incarnation; `index` when none is absent."""


def slots(job: TrainingJob) -> tuple[Slot, ...]:
    """All slots of the job in rank order, with the ranks they have when none is absent."""
    found: list[Slot] = []
    offset = 0
    for role in job.spec.roles:
        for replica in range(role.replicas):
            pod, index = f"{job.metadata.name}-{role.name}-{replica}", len(found)
            found.append(Slot(index, role.name, replica, pod, offset, role.processes_per_replica, index))
            offset += role.processes_per_replica
    return tuple(found)


def without(layout: Iterable[Slot], absent: Collection[tuple[str, int]]) -> tuple[Slot, ...]:
    """The slots but for the (role, replica) pairs in `absent`; ranks and positions close up."""
    found: list[Slot] = []
    offset = 0
    for slot in layout:
        if (slot.role, slot.replica) not in absent:
            found.append(replace(slot, rank_offset=offset, position=len(found)))
            offset += slot.processes
    return tuple(found)


def present(job: TrainingJob) -> tuple[Slot, ...]:
    """The slots of the incarnation that has formed, by the job's status."""
    absent = {(role.name, replica) for role in job.status.roles for replica in role.absent}
    return without(slots(job), absent) if absent else slots(job)


def world_size(layout: Iterable[Slot]) -> int:
    """Ranks of all these slots together."""
    return sum(slot.processes for slot in layout)


def command(job: TrainingJob, engine: Engine | None, slot: Slot) -> tuple[str, ...]:
    """The command line of the slot's ranks: the user's own, else the engine's; ValueError without either."""
    template = next(role for role in job.spec.roles if role.name == slot.role).template
    if template and template.spec.containers and template.spec.containers[0].command:
        container = template.spec.containers[0]
        return (*(container.command or ()), *(container.args or ()))
    if engine is None:
        name = f"Engine {job.spec.engine.name!r}" if job.spec.engine else "an engine"
        raise ValueError(
            f"spec.roles[{slot.role}]: there is no command and {name} is not given; "
            "pass the Engine's manifest or set template.spec.containers[0].command"
        )
    return tuple(engine.spec.command)
