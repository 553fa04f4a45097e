"""Checks the commands of a TrainingJob, role by role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy_controllers.launching.groups import Pods, problem
from convoy_crds.engine import Engine
from convoy_crds.layout import command, first_slots
from convoy_crds.trainingjob import Role, TrainingJob
from convoy_crds.variables import declared


@dataclass(frozen=True, slots=True)
class Misfit:
    """A role's command that cannot be run, and the reason."""

    path: str
    """Path of the job's field that contains the command."""
    why: str
    refused: bool = False
    """True if the launcher would reject the arguments in the command. False if the job's pods would not
    form one group.
    """

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def misfits(job: TrainingJob, engine: Engine | None) -> Iterator[Misfit]:
    """Yield the commands that their launcher rejects, or that do not form one process group."""
    firsts = first_slots(job)
    try:
        commands = {role.name: command(job, engine, firsts[role.name]) for role in job.spec.roles}
    except ValueError:  # A command is missing, which another check reports.
        return
    members = [role for role in job.spec.roles if not role.independent]
    total = sum(role.replicas for role in members)
    for index, role in enumerate(job.spec.roles):
        words = commands[role.name]
        alike = sum(other.replicas for other in members if commands[other.name] == words)
        group = (1, 1) if role.independent else (alike, total)
        pods = Pods(*group, role.processes_per_replica, _gpus(role))
        if found := problem(words, declared(role), pods):
            path = f"spec.roles[{index}].template.spec.containers[0].{_field(role)}"
            yield Misfit(path, found.why, found.refused)


def _field(role: Role) -> str:
    """Return the container field that contains the end of the role's command line: `args` or `command`. The
    options of a launcher stand there.
    """
    containers = role.template.spec.containers if role.template else None
    return "args" if containers and containers[0].command and containers[0].args else "command"


def _gpus(role: Role) -> int:
    """Return the GPUs in the limits of the role's container; 0 if it has none."""
    containers = role.template.spec.containers if role.template else None
    resources = containers[0].resources if containers else None
    limits = (resources.limits if resources else None) or {}
    counts = [str(count) for name, count in limits.items() if name.endswith("/gpu")]
    return sum(int(count) for count in counts if count.isdecimal())
