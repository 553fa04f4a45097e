"""The rules by which a gang scheduler starts all pods of a gang or none. This module does no I/O.

They stand in for schedulers that cannot be installed here, so their figures are simulated. Every node has
room for whole processors, and all pods of a gang are equal.

Coscheduling (scheduler-plugins pkg/coscheduling): a pod is tried alone. PreFilter rejects it if the gang has
too few pods, or if `minResources` exceeds what is free. A pod that fits waits at Permit and holds its node
until `minMember` pods hold theirs, at most `scheduleTimeoutSeconds` (default 60). If a pod does not fit and
more than a tenth of `minMember` is missing, PostFilter rejects the pods that wait.

Volcano (pkg/scheduler/plugins/gang, actions/enqueue, actions/allocate): a session every second. A PodGroup
whose `minResources` fit into the cluster is enqueued. A session places the pods of an enqueued gang, and
undoes the places of a gang with fewer than `minMember`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PERMIT_SECONDS = 60.0
"""Seconds for which a pod waits at Permit without `scheduleTimeoutSeconds`."""
REJECT_SHARE = 0.1
"""Missing share of `minMember` above which PostFilter rejects the waiting pods."""


@dataclass(frozen=True)
class Waiting:
    """A pod without a node."""

    name: str
    gang: str
    cpus: int


@dataclass(frozen=True)
class Group:
    """A PodGroup."""

    name: str
    created: str
    """Creation time; groups are served in this order."""
    least: int
    """minMember"""
    cpus: int = 0
    """Processors in `minResources`."""
    timeout: float = PERMIT_SECONDS


@dataclass
class View:
    """The scheduler's view of the cluster in one cycle."""

    free: dict[str, int]
    """Free processors of each node, without the pods that have one."""
    waiting: Sequence[Waiting]
    bound: Mapping[str, int]
    """Number of pods with a node, by gang."""
    groups: Mapping[str, Group]

    def gangs(self) -> Iterable[tuple[Group, list[Waiting]]]:
        """Yield each gang that has waiting pods, the oldest first."""
        names = {one.gang for one in self.waiting} & self.groups.keys()
        for group in sorted((self.groups[name] for name in names), key=lambda one: (one.created, one.name)):
            yield group, [one for one in self.waiting if one.gang == group.name]


@dataclass
class Coscheduling:
    """The rule of scheduler-plugins."""

    held: dict[str, tuple[str, str, int, float]] = field(default_factory=dict)
    """Gang, node, processors and start of the wait of each pod that waits at Permit, by name of the pod."""

    def cycle(self, view: View, now: float) -> dict[str, str]:
        """Return the node of each pod to bind, by name of the pod."""
        self._expire(view, now)
        for _, node, cpus, _ in self.held.values():
            view.free[node] -= cpus
        found: dict[str, str] = {}
        for group, pods in view.gangs():
            found |= self._place(view, group, pods, now)
        return found

    def _place(self, view: View, group: Group, pods: Sequence[Waiting], now: float) -> dict[str, str]:
        holding = sum(gang == group.name for gang, *_ in self.held.values())
        bound = view.bound.get(group.name, 0)
        own = sum(cpus for gang, _, cpus, _ in self.held.values() if gang == group.name)
        short = len(pods) + bound < group.least
        if short or (not holding and not bound and sum(view.free.values()) + own < group.cpus):
            return {}
        for pod in (one for one in pods if one.name not in self.held):
            node = _fitting(view.free, pod.cpus)
            if node is None:
                missing = group.least - holding - bound
                if missing > REJECT_SHARE * group.least:
                    self._reject(group.name, view)
                return {}
            view.free[node] -= pod.cpus
            self.held[pod.name] = group.name, node, pod.cpus, now
            holding += 1
        if holding + bound < group.least:
            return {}
        ready = [name for name, (gang, *_) in self.held.items() if gang == group.name]
        return {name: self.held.pop(name)[1] for name in ready}

    def _expire(self, view: View, now: float) -> None:
        """Drop pods that no longer wait, and gangs of which a pod has waited too long."""
        names = {one.name for one in view.waiting}
        self.held = {name: one for name, one in self.held.items() if name in names}
        late = {
            gang
            for gang, _, _, since in self.held.values()
            if gang not in view.groups or now - since > view.groups[gang].timeout
        }
        self.held = {name: one for name, one in self.held.items() if one[0] not in late}

    def _reject(self, gang: str, view: View) -> None:
        for name in [name for name, one in self.held.items() if one[0] == gang]:
            _, node, cpus, _ = self.held.pop(name)
            view.free[node] += cpus


@dataclass
class Volcano:
    """The rule of Volcano."""

    enqueued: set[str] = field(default_factory=set)
    """Names of the PodGroups that may be placed."""
    held: dict[str, tuple[str, str, int, float]] = field(default_factory=dict)
    """Always empty: no pod holds a node between two sessions."""

    def cycle(self, view: View, now: float) -> dict[str, str]:
        """Return the node of each pod to bind, by name of the pod."""
        self.enqueued &= view.groups.keys()
        # The processors that enqueued gangs without a node will use are spoken for. Gangs that have ended use
        # none.
        waits = {one.gang for one in view.waiting}
        idle = [name for name in self.enqueued & waits if not view.bound.get(name)]
        left = sum(view.free.values()) - sum(view.groups[name].cpus for name in idle)
        found: dict[str, str] = {}
        for group, pods in view.gangs():
            if group.name not in self.enqueued:
                if group.cpus > left:
                    continue
                left -= group.cpus
                self.enqueued.add(group.name)
            found |= self._allocate(view, group, pods)
        return found

    @staticmethod
    def _allocate(view: View, group: Group, pods: Sequence[Waiting]) -> dict[str, str]:
        free, found = dict(view.free), dict[str, str]()
        for pod in pods:
            if (node := _fitting(free, pod.cpus)) is not None:
                free[node] -= pod.cpus
                found[pod.name] = node
        if len(found) + view.bound.get(group.name, 0) < group.least:
            return {}
        view.free.update(free)
        return found


def _fitting(free: Mapping[str, int], cpus: int) -> str | None:
    """Return the node with most free processors, if the pod fits there."""
    best = max(free, key=lambda name: (free[name], name), default=None)
    return best if best is not None and free[best] >= cpus else None
