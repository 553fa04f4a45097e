"""The layout of a job: its slots, the ranks of each slot, and the command of the ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one pod in a job."""

    index: int
    """Number of the slot among all slots of the job, from 0, in the order of the roles."""
    role: str
    replica: int
    """Number of the slot within its role, from 0."""
    pod: str
    rank_offset: int
    """Global rank of the pod's first rank."""
    processes: int
    position: int
    """Number of the slot among the slots of the incarnation, from 0. It equals `index` if no slot is
    absent.
    """
    alone: bool = False
    """True for a slot of an Independent role."""


def slots(job: TrainingJob) -> tuple[Slot, ...]:
    """Return all slots of the job's process group in the order of their ranks. The ranks are those of an
    incarnation without absent slots. Slots of Independent roles are left out.
    """
    found: list[Slot] = []
    offset = 0
    for role in job.spec.roles:
        if role.independent:
            continue
        for replica in range(role.replicas):
            pod, index = f"{job.metadata.name}-{role.name}-{replica}", len(found)
            found.append(Slot(index, role.name, replica, pod, offset, role.processes_per_replica, index))
            offset += role.processes_per_replica
    return tuple(found)


def independent_slots(job: TrainingJob) -> tuple[Slot, ...]:
    """Return the slots of the job's Independent roles. Each has a group of its own with one rank. Their
    indexes follow those of the process group's slots.
    """
    roles = [role for role in job.spec.roles if role.independent]
    pairs = [(role.name, replica) for role in roles for replica in range(role.replicas)]
    first = sum(role.replicas for role in job.spec.roles if not role.independent)
    return tuple(
        Slot(index, name, replica, f"{job.metadata.name}-{name}-{replica}", 0, 1, 0, alone=True)
        for index, (name, replica) in enumerate(pairs, start=first)
    )


def first_slots(job: TrainingJob) -> dict[str, Slot]:
    """Return the first slot of each role, by name of the role."""
    return {slot.role: slot for slot in reversed((*slots(job), *independent_slots(job)))}


def without(layout: Iterable[Slot], absent: Collection[tuple[str, int]]) -> tuple[Slot, ...]:
    """Return the slots without the (role, replica) pairs in `absent`. The remaining slots get consecutive
    ranks and positions.
    """
    found: list[Slot] = []
    offset = 0
    for slot in layout:
        if (slot.role, slot.replica) not in absent:
            found.append(replace(slot, rank_offset=offset, position=len(found)))
            offset += slot.processes
    return tuple(found)


def present(job: TrainingJob) -> tuple[Slot, ...]:
    """Return the slots of the job's current incarnation, according to the job's status."""
    absent = {(role.name, replica) for role in job.status.roles for replica in role.absent}
    layout = numbered(slots(job), {role.name: role.order for role in job.status.roles})
    return without(layout, absent) if absent else layout


def numbered(layout: tuple[Slot, ...], orders: Mapping[str, Sequence[int]]) -> tuple[Slot, ...]:
    """Return the slots with their ranks in these orders: replicas by name of the role. Replicas that an order
    lacks come last in their role. An empty order means the order of the replicas.
    """
    if not any(orders.values()):
        return layout
    roles = list(dict.fromkeys(slot.role for slot in layout))
    places = {(role, replica): place for role, order in orders.items() for place, replica in enumerate(order)}

    def key(slot: Slot) -> tuple[int, int, int]:
        place = places.get((slot.role, slot.replica), len(layout))
        return roles.index(slot.role), place, slot.replica

    return without(sorted(layout, key=key), ())


def world_size(layout: Iterable[Slot]) -> int:
    """Return the number of ranks in these slots."""
    return sum(slot.processes for slot in layout)


def command(job: TrainingJob, engine: Engine | None, slot: Slot) -> tuple[str, ...]:
    """Return the command line of the slot's ranks. It is the command of the role's template or, without
    one, the command of the Engine.

    Raises ValueError if neither has a command.
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
