"""The interface of a gang backend. A backend is plain data and pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.placement.requests import Amounts
from convoy_controllers.resources import Resource
from convoy_crds.placement import GangBackend


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that must start together."""

    name: str
    """Name of the PodGroup."""
    owner: Mapping[str, Any]
    """Owner reference to the job."""
    least: int
    """Number of pods without which none may start."""
    least_by_role: Mapping[str, int] = field(default_factory=dict)
    """The same number for each role."""
    requests: Amounts = field(default_factory=dict)
    """Requests of the `least` pods together, in thousandths of each resource's unit."""
    elastic: bool = False
    """True if the job can lose pods of the gang and go on."""
    priority_class: str = ""
    """PriorityClass of all pods; empty without one."""
    topology_key: str = ""
    """Node label of which one domain must hold all pods; empty if there is no such demand."""
    queue: str = ""
    """Queue of the backend itself; empty for its default."""


@dataclass(frozen=True, slots=True)
class GangState:
    """The state of a gang, as its PodGroup shows it."""

    placed: bool | None = None
    """True if the scheduler has placed the gang, False if it could not, None if it has not tried. A scheduler
    does not take True back when pods are lost later.
    """
    message: str = ""
    """The scheduler's own words; empty without any."""
    chooses_domain: bool = False
    """True if the scheduler itself chooses the domain of `topology_key`."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One scheduler feature."""

    name: GangBackend
    resources: Sequence[Resource]
    """The versions of the PodGroup that Convoy can write, the best first."""
    api: str
    """API group for messages."""
    advice: str
    """Advice for the installation of the backend."""
    manifest: Callable[[Gang, Resource], dict[str, Any]]
    """(gang, version) -> its PodGroup, without namespace."""
    member: Callable[[Mapping[str, Any], Gang, str], dict[str, Any]]
    """(pod manifest, gang, role) -> the manifest of a pod that belongs to the gang."""
    state: Callable[[Mapping[str, Any]], GangState]
    """(PodGroup) -> its state."""
    scheduler: str = ""
    """Scheduler of the pods, if their template names none; empty for the default scheduler."""
    reports: bool = True
    """True if the scheduler itself writes the state of a placed PodGroup."""
    holds_nodes: bool = False
    """True if pods of a gang hold nodes while the gang waits."""
    queues: bool = False
    """True if the scheduler has queues of its own. A PodGroup uses up room of its queue even without pods."""

    def version(self, served: Collection[Resource]) -> Resource | None:
        """Return the PodGroup to use; None if the API server serves none."""
        return next((one for one in self.resources if one in served), None)


@dataclass(frozen=True, slots=True)
class GangMember:
    """The place of a pod in a gang."""

    backend: Backend
    gang: Gang
    role: str

    def join(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pod's manifest with the fields by which the scheduler finds its gang."""
        return self.backend.member(pod, self.gang, self.role)


@dataclass(frozen=True, slots=True)
class GangGroup:
    """A gang with its backend."""

    backend: Backend
    gang: Gang

    def member(self, role: str) -> GangMember:
        """Return the place of a role's pods."""
        return GangMember(self.backend, self.gang, role)


def pod_group(resource: Resource, gang: Gang, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a PodGroup."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": gang.name, "ownerReferences": [dict(gang.owner)]},
        "spec": dict(spec),
    }


def condition_of(group: Mapping[str, Any], types: Collection[str]) -> Mapping[str, Any]:
    """Return the first condition of a PodGroup whose type is one of `types`; empty without one."""
    for one in (group.get("status") or {}).get("conditions") or ():
        if one.get("type") in types:
            found: Mapping[str, Any] = one
            return found
    return {}
