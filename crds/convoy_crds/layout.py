"""Which slot of the job each pod is, which ranks it holds, and what they run."""

from __future__ import annotations

from dataclasses import dataclass

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


def slots(job: TrainingJob) -> tuple[Slot, ...]:
    """All slots of the job in rank order."""
    found: list[Slot] = []
    offset = 0
    for role in job.spec.roles:
        for replica in range(role.replicas):
            pod = f"{job.metadata.name}-{role.name}-{replica}"
            found.append(Slot(len(found), role.name, replica, pod, offset, role.processes_per_replica))
            offset += role.processes_per_replica
    return tuple(found)


def world_size(job: TrainingJob) -> int:
    """Ranks of the whole job."""
    return sum(role.replicas * role.processes_per_replica for role in job.spec.roles)


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
