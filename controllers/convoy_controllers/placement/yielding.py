"""Chooses the pods of elastic jobs that leave, to make room for a gang of higher priority.

A scheduler that preempts evicts whole gangs, or single pods of them, without a save that all ranks agree on.
Convoy first asks elastic jobs for the pods above their `minReplicas`. Nobody is asked for a pod that does not
help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convoy_controllers.placement.packing import Choice, PodClass, Room, choose
from convoy_controllers.placement.requests import Amounts, copies_that_fit
from convoy_crds.placement import MAX_CLAIMS

MAX_TRIALS = 24
"""Maximum number of searches for pods that need not leave."""


@dataclass(frozen=True, slots=True)
class SparePod:
    """A pod without which its job can run."""

    job: str
    """Name of the job, `namespace/name`."""
    role: str
    replica: int
    node: str
    requests: Amounts
    priority: int = 0
    """Priority of the job."""
    created: float = 0.0
    """Unix seconds at which the job was created."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A gang that needs room."""

    classes: Sequence[PodClass]
    priority: int
    keys: int = 0
    """Number of topology keys; 0 if the pods may run anywhere."""
    required: bool = False
    """True if one domain of the first key must hold all pods."""


def fits(claim: Claim, rooms: Sequence[Room]) -> bool:
    """Return True if the nodes have room for the whole gang."""
    found = choose(claim.classes, rooms, max(claim.keys, 1), required=claim.required)
    return isinstance(found, Choice) and found.whole


def pods_to_leave(claim: Claim, spare: Sequence[SparePod], rooms: Sequence[Room]) -> tuple[SparePod, ...]:
    """Return the fewest pods whose leaving makes room for the gang; empty if it has room, or if no number of
    spare pods makes room, or if more than MAX_CLAIMS pods would have to leave.

    Pods of the lowest priority leave first, of these the pods of the youngest jobs, and of a job those with
    the highest numbers.
    """
    lower = [one for one in spare if one.priority < claim.priority]
    lower.sort(key=lambda one: (one.priority, -one.created, one.job, one.role, -one.replica))
    rooms = _useful(claim, lower, rooms)
    if fits(claim, rooms) or not fits(claim, freed(rooms, lower)):
        return ()
    count = _needed(claim, lower, rooms)
    return _without_useless(claim, lower[:count], rooms) if count <= MAX_CLAIMS else ()


def _useful(claim: Claim, spare: Sequence[SparePod], rooms: Sequence[Room]) -> list[Room]:
    """Return the nodes that have room for a pod of the gang, or a spare pod. No other node can help."""
    there = {one.node for one in spare}
    return [
        room
        for room in rooms
        if room.node in there
        or any(one.name in room.classes and copies_that_fit(room.free, one.requests) for one in claim.classes)
    ]


def _without_useless(claim: Claim, chosen: Sequence[SparePod], rooms: Sequence[Room]) -> tuple[SparePod, ...]:
    """Return the pods without those that need not leave. It tries large blocks first, the last pods of a
    block before the first, and at most MAX_TRIALS blocks.
    """
    left, trials, size = list(chosen), 0, max(1, len(chosen) // 2)
    while True:
        for start in range(len(left) - size, -1, -size):
            if trials == MAX_TRIALS:
                return tuple(left)
            trials += 1
            rest = left[:start] + left[start + size :]
            if fits(claim, freed(rooms, rest)):
                left = rest
        if size == 1:
            return tuple(left)
        size //= 2


def freed(rooms: Sequence[Room], leaving: Sequence[SparePod]) -> list[Room]:
    """Return the nodes as they are once these pods have left."""
    gained: dict[str, dict[str, int]] = {}
    for pod in leaving:
        there = gained.setdefault(pod.node, {})
        for name, amount in pod.requests.items():
            there[name] = there.get(name, 0) + amount
    return [replace(room, free=_sum(room.free, gained.get(room.node, {}))) for room in rooms]


def _needed(claim: Claim, lower: Sequence[SparePod], rooms: Sequence[Room]) -> int:
    """Return the smallest number of pods from the start of `lower` that makes room. More pods never leave
    less room, so a binary search finds it.
    """
    least, most = 1, len(lower)
    while least < most:
        middle = (least + most) // 2
        if fits(claim, freed(rooms, lower[:middle])):
            most = middle
        else:
            least = middle + 1
    return most


def _sum(one: Amounts, other: Mapping[str, int]) -> Amounts:
    return {**one, **{name: one.get(name, 0) + amount for name, amount in other.items()}} if other else one
