"""Lists places where the pods of a job may run: the one that packing chooses, and others beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from convoy_controllers.placement.packing import Choice, NoRoom, PodClass, Room, choose, near
from convoy_controllers.placement.requests import copies_that_fit
from convoy_controllers.placement.topology import Path, shown

MOST = 8
PACKED = "packed"
ONE_PER_NODE = "one pod per node"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Places for all pods of a job."""

    name: str
    choice: Choice


def candidates(
    packed: Choice, classes: Sequence[PodClass], rooms: Sequence[Room], keys: int, *, required: bool
) -> list[Candidate]:
    """Return at most MOST places for all pods; first `packed`, the one that packing chooses. Places with the
    same nodes are listed once, and places without a node for each pod not at all.

    The others fill a domain of the first key first, those with most room before the rest; and put one pod on
    each node. `keys`: number of topology keys.
    """
    found: list[tuple[str, Choice | NoRoom]] = [(PACKED, packed)]
    for path in _largest(classes, rooms)[: MOST - 2]:
        found.append((f"{shown(path)} first", near(classes, rooms, keys, [path], required=required)))
    found.append((ONE_PER_NODE, choose(classes, _one_each(classes, rooms), keys, required=required)))
    listed: list[Candidate] = []
    seen: set[tuple[tuple[str, tuple[str, ...]], ...]] = set()
    for name, choice in found:
        if isinstance(choice, NoRoom) or not choice.whole:
            continue
        nodes = tuple(sorted((one, tuple(sorted(each))) for one, each in choice.nodes.items()))
        if nodes not in seen:
            seen.add(nodes)
            listed.append(Candidate(name, choice))
    return listed[:MOST]


def _largest(classes: Sequence[PodClass], rooms: Sequence[Room]) -> list[Path]:
    """Return a path of each domain of the first key, those with room for most pods first."""
    counts: Counter[Path] = Counter()
    for room in rooms:
        if all(room.path):
            fits = [copies_that_fit(room.free, one.requests) for one in classes if one.name in room.classes]
            counts[room.path] += max(fits, default=0)
    return sorted((path for path, count in counts.items() if count), key=lambda path: (-counts[path], path))


def _one_each(classes: Sequence[PodClass], rooms: Sequence[Room]) -> list[Room]:
    """Return the rooms with place for one pod each: the largest that fits."""
    found = []
    for room in rooms:
        fitting = [
            one for one in classes if one.name in room.classes and copies_that_fit(room.free, one.requests)
        ]
        if fitting:
            largest = max(fitting, key=lambda one: sorted(one.requests.values(), reverse=True))
            found.append(replace(room, free=dict(largest.requests)))
    return found
