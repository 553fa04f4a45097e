"""The placement of tasks on the pods of a replica: by backbone first, then by memory. Pure.

Tasks with equal backbones share one copy of it, so a task goes to a pod that has its backbone already. Only
if no such pod has room, another pod loads a further copy. Every pod computes the same placement from the
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Demand:
    """The memory that a task needs."""

    task: str
    backbone: str
    """Digest of the task's backbone."""
    bytes: int
    """Memory of the task's own parts: adapter and head."""


class Unplaceable(Exception):
    """Raised if no pod has room for a task. The message names the task and the missing memory."""


@dataclass
class _Pod:
    number: int
    free: int
    backbones: set[str] = field(default_factory=set)

    def need(self, demand: Demand, size: int) -> int:
        """Return the memory that the task adds to this pod, with a backbone of `size` bytes."""
        return demand.bytes + (0 if demand.backbone in self.backbones else size)


def place(
    demands: Sequence[Demand],
    backbones: Mapping[str, int],
    room: Sequence[int],
    placed: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the number of the pod of each task.

    `backbones`: bytes of each backbone, by digest. `room`: bytes that each pod has for weights. `placed`:
    pods of tasks that already run, which stay. Raises Unplaceable.
    """
    pods = [_Pod(number, size) for number, size in enumerate(room)]
    found: dict[str, int] = {}
    stay = placed or {}
    for one in demands:
        if one.task in stay:
            _put(one, pods[stay[one.task]], backbones, found)
    groups: dict[str, list[Demand]] = {}
    for one in demands:
        if one.task not in found:
            groups.setdefault(one.backbone, []).append(one)
    order = sorted(
        groups, key=lambda digest: (-backbones[digest] - sum(one.bytes for one in groups[digest]), digest)
    )
    for digest in order:
        _place_group(groups[digest], pods, backbones, found)
    return found


def _place_group(
    group: Sequence[Demand], pods: Sequence[_Pod], backbones: Mapping[str, int], found: dict[str, int]
) -> None:
    """Place tasks with equal backbones: together if a pod has room for all, else on further pods."""
    size = backbones[group[0].backbone]
    all_bytes = sum(one.bytes for one in group)
    whole = Demand("", group[0].backbone, all_bytes)
    fits = [pod for pod in pods if pod.need(whole, size) <= pod.free]
    if fits:
        pod = min(fits, key=lambda one: _preference(one, whole))
        for one in group:
            _put(one, pod, backbones, found)
        return
    for one in sorted(group, key=lambda demand: (-demand.bytes, demand.task)):
        fits = [pod for pod in pods if pod.need(one, size) <= pod.free]
        if not fits:
            least = min(pod.need(one, size) - pod.free for pod in pods)
            raise Unplaceable(
                f"task {one.task!r}: no pod has room for it; {-(-least // 2**20)} MiB are missing. Add pods "
                "(spec.roles[].groupSize) or memory (params.memory_mib), or remove tasks"
            )
        _put(one, min(fits, key=lambda pod: _preference(pod, one)), backbones, found)


def _preference(pod: _Pod, demand: Demand) -> tuple[bool, int, int]:
    """Return the sort key of a pod: first those with the backbone, then those with the most free memory."""
    return demand.backbone not in pod.backbones, -pod.free, pod.number


def _put(demand: Demand, pod: _Pod, backbones: Mapping[str, int], found: dict[str, int]) -> None:
    pod.free -= pod.need(demand, backbones[demand.backbone])
    pod.backbones.add(demand.backbone)
    found[demand.task] = pod.number
