"""Chooses the gang scheduler for pods that start together, and names their PodGroup. Pure.

The caller stores the choice when the first pods are created. Pods that replace others join the PodGroup of
those that stay. A start without any pod gets another PodGroup: a scheduler counts pods that still end, so
that old pods would let the gang start in part.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_controllers.placement.gangs import BACKENDS, volcano
from convoy_controllers.placement.gangs.backend import Backend, Gang
from convoy_controllers.placement.requests import known_requests
from convoy_controllers.resources import Resource
from convoy_controllers.workers.violation import Violation
from convoy_crds.placement import GangBackend, Pack, Packing
from convoy_crds.reasons.catalogue import Reasons

GANG_RESOURCES: tuple[Resource, ...] = tuple(one for backend in BACKENDS for one in backend.resources)
DEFAULT_SCHEDULER = "default-scheduler"
BY_NAME: Mapping[GangBackend, Backend] = {one.name: one for one in BACKENDS}
_MAX_NAME = 63
"""Maximum length of a PodGroup's name. Some backends write it into a label of the pods."""
_SHAPE_DIGITS = _START_DIGITS = 3
_MAX_SUFFIX = 4
"""Length of `-999`, which counts the starts with the same digest."""


@dataclass(frozen=True, slots=True)
class GangRole:
    """The pods of one role of a gang."""

    name: str
    spec: Mapping[str, Any]
    """The pod spec of the role's template; empty without one."""
    least: int
    """Number of pods without which the gang may not start."""
    most: int
    """Number of pods that the role wants."""


@dataclass(frozen=True, slots=True)
class GangSpec:
    """The pods that start together, and how their job wants them placed."""

    packing: Packing
    roles: Sequence[GangRole]
    queue: str = ""
    """Queue of a scheduler with queues of its own; empty for its default."""

    @property
    def least(self) -> int:
        """Return the number of pods without which none may start."""
        return sum(one.least for one in self.roles)

    @property
    def elastic(self) -> bool:
        """Return True if the job can lose pods of the gang and go on."""
        return any(one.most > one.least for one in self.roles)

    @property
    def priority_class(self) -> str:
        """Return the PriorityClass of all pods; empty without one."""
        return self.value("priorityClassName")

    @property
    def topology_key(self) -> str:
        """Return the node label of which one domain must hold all pods; empty if there is no such demand."""
        keys = self.packing.topology_keys
        return keys[0] if keys and self.packing.pack is Pack.REQUIRED else ""

    def value(self, field: str) -> str:
        """Return a field of the pod spec that all roles share; empty without one."""
        return str(self.roles[0].spec.get(field) or "") if self.roles else ""

    def scheduler(self, backend: Backend) -> str:
        """Return the name of the scheduler of the pods."""
        return self.value("schedulerName") or backend.scheduler or DEFAULT_SCHEDULER


def queue_of(annotations: Mapping[str, str]) -> str:
    """Return the Volcano queue that a job's annotations name; empty without one."""
    return annotations.get(volcano.QUEUE_ANNOTATION, "")


def choose(wanted: GangSpec, served: Collection[Resource]) -> tuple[Backend | None, Violation | None]:
    """Return the backend; None if each pod starts alone. If the job names a backend that it cannot have,
    return the reason why its pods must wait.
    """
    name = wanted.packing.gang
    if name is GangBackend.NONE or wanted.least < 2:
        return None, None
    differs = split(wanted)
    if name is GangBackend.AUTO:
        fitting = (one for one in BACKENDS if one.version(served) and _fits(wanted, one))
        return (None if differs else next(fitting, None)), None
    backend = BY_NAME[name]
    if differs:
        return None, Violation(Reasons.GANG_SPLIT, Reasons.GANG_SPLIT.format(backend=name.value, **differs))
    missing = missing_api(backend, served)
    return (None if missing else backend), missing


def missing_api(backend: Backend, served: Collection[Resource]) -> Violation | None:
    """Return the reason why pods must wait if the API server does not serve the backend's PodGroup; None if
    it does.
    """
    if backend.version(served) is not None:
        return None
    reason = Reasons.GANG_MISSING
    facts = {"backend": backend.name.value, "api": backend.api, "advice": backend.advice}
    return Violation(reason, reason.format(**facts))


def split(wanted: GangSpec) -> dict[str, str]:
    """Return the field in which roles differ although a gang needs one value, and its values; empty if there
    is none.
    """
    for field in ("priorityClassName", "schedulerName"):
        values = {role.name: str(role.spec.get(field) or "") for role in wanted.roles}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value or 'none'}" for name, value in values.items())
            return {"field": f"template.spec.{field}", "values": shown}
    return {}


def _fits(wanted: GangSpec, backend: Backend) -> bool:
    """Return True if `Auto` may choose the backend for the scheduler that the templates name. A scheduler
    that Convoy does not know has its own gangs, or none.
    """
    return wanted.value("schedulerName") in ("", backend.scheduler or DEFAULT_SCHEDULER)


def gang(wanted: GangSpec, name: str, owner: Mapping[str, Any], topology_key: str | None = None) -> Gang:
    """Return the gang with the PodGroup `name`. `topology_key`: the key with which the PodGroup was created;
    None for that of the job.
    """
    requests: Counter[str] = Counter()
    for role in wanted.roles:
        requests.update(
            {one: amount * role.least for one, amount in (known_requests(role.spec) or {}).items()}
        )
    return Gang(
        name=name,
        owner=owner,
        least=wanted.least,
        least_by_role={role.name: role.least for role in wanted.roles},
        requests=dict(requests),
        elastic=wanted.elastic,
        priority_class=wanted.priority_class,
        topology_key=wanted.topology_key if topology_key is None else topology_key,
        queue=wanted.queue,
    )


@dataclass(frozen=True, slots=True)
class GroupName:
    """The parts of a PodGroup's name: `<job><tail>-<digest>`.

    The first half of the digest tells gangs with other pods apart, and the second half the starts.
    """

    job: str
    tail: str
    """End of the readable part, such as `-worker-0`; empty without one."""
    shape: str
    start: str

    @property
    def base(self) -> str:
        """Return the name."""
        digits = _SHAPE_DIGITS + _START_DIGITS
        room = _MAX_NAME - len(self.tail) - digits - 1 - _MAX_SUFFIX
        return f"{self.job[:room].rstrip('-.')}{self.tail}-{self.shape}{self.start}"

    def has_shape_of(self, name: str) -> bool:
        """Return True if the PodGroup `name` is for the same pods, of this or another start."""
        return name.startswith(self.base[: len(self.base) - _START_DIGITS])

    def after(self, previous: str, *, used: bool) -> str:
        """Return the name for a start without any pod. `previous`: the name that is stored. `used`: True if
        pods of that PodGroup still end.
        """
        if previous != self.base and not previous.startswith(f"{self.base}-"):
            return self.base
        if not used:
            return previous
        number = previous[len(self.base) + 1 :]
        return f"{self.base}-{int(number) + 1 if number.isdecimal() else 2}"


def group_name(wanted: GangSpec, job: str, tail: str, start: Sequence[object]) -> GroupName:
    """Return the name of a PodGroup. `start`: facts that differ from start to start."""
    least = {role.name: role.least for role in wanted.roles}
    shape = [least, wanted.elastic, wanted.priority_class, wanted.topology_key]
    shape += [wanted.queue] if wanted.queue else []
    return GroupName(job, tail, _digest(shape, _SHAPE_DIGITS), _digest(list(start), _START_DIGITS))


def _digest(facts: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:digits]
