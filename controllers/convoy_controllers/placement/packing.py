"""Chooses the nodes of a gang: as few far domains as possible, and full nodes before empty ones.

The search goes from the nearest topology key to the farthest. At each key, the domain that holds all pods and
has the least room left is chosen (best fit), so that large rooms stay for large gangs. If no domain of a key
is large enough, the smallest sufficient domain of the next key is filled, its largest sub-domains first.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile

from convoy_controllers.placement.requests import Amounts, copies_that_fit, subtract
from convoy_controllers.placement.topology import Path


@dataclass(frozen=True, slots=True)
class Room:
    """A node that may run pods of the gang."""

    node: str
    path: Path
    """Names of the node's domains, the nearest key first."""
    free: Amounts
    """Resources that no pod has requested."""
    classes: frozenset[str] = frozenset()
    """Classes of pods that the node's labels and taints admit."""


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods with the same requests that the same nodes admit: the pods of one role."""

    name: str
    requests: Amounts
    count: int
    """Number of pods to place."""
    least: int = 0
    """Number of pods without which the gang cannot run."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen nodes."""

    nodes: Mapping[str, Sequence[str]]
    """Node of each pod to place, by name of the class, near pods beside each other. Pods beyond the room
    have no node.
    """
    level: int
    """Index of the nearest key of which one domain holds all placed pods; the number of keys if there is
    none.
    """
    domain: Path = ()
    """That domain: the names of the key at `level` and of all farther keys. Empty for pods that join others.
    """
    whole: bool = True
    """True if every pod has a node."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The reason why no domain of the first key holds the gang."""

    largest: Path
    """The domain with room for most pods; empty if no node admits the pods."""
    holds: int
    """Number of pods for which that domain has room."""
    wanted: int


@dataclass(slots=True)
class _Fill:
    """The pods that fit into a set of nodes."""

    nodes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    left: dict[str, int] = field(default_factory=dict)
    """Pods without a node, by name of the class."""

    @property
    def placed(self) -> int:
        return sum(map(len, self.nodes.values()))


def choose(
    classes: Sequence[PodClass], rooms: Sequence[Room], keys: int, *, required: bool, attempt: str = ""
) -> Choice | NoRoom:
    """Return the nodes of the gang's pods. `keys`: number of topology keys, at least 1.

    With `required`, all pods are placed in one domain of the first key. If it has room for fewer pods than
    `count`, but for `least` of each class, the other pods have no node. Return NoRoom if no domain has.

    `attempt`: any text that differs from attempt to attempt, if an earlier attempt with `required` has
    failed; empty otherwise. The scheduler may have reasons against the best domain that nobody else can see,
    such as volumes. The text then decides which of the sufficient domains is chosen.
    """
    wanted, classes = sum(one.count for one in classes), _hardest_first(classes, rooms)
    for level in range(1 if required else keys):
        domains = _domains(rooms, level)
        fitting = [name for name, inside in domains.items() if not any(_fill(classes, inside).left.values())]
        if fitting:
            best = min(fitting, key=lambda name: (_turn(attempt, name), _spare(classes, domains[name]), name))
            placed = _packed(classes, domains[best], level)
            return Choice(placed.nodes, level, best)
    if required:
        return _largest(classes, rooms, wanted, attempt)
    placed = _packed(classes, rooms, keys)
    return Choice(placed.nodes, keys, whole=not any(placed.left.values()))


def near(
    classes: Sequence[PodClass], rooms: Sequence[Room], keys: int, fixed: Sequence[Path], *, required: bool
) -> Choice | NoRoom:
    """Return nodes for pods that join others. `fixed`: domain paths of the nodes of those others.

    The nearest domains of the others come first, those with most of them before the rest, then the domains
    of the next key. With `required`, only domains of the first key that the others use are chosen. If they
    have room for some of the pods, and for `least` of each class, the other pods have no node.
    """
    wanted, classes = sum(one.count for one in classes), _hardest_first(classes, rooms)
    found = _Fill(left={one.name: one.count for one in classes})
    used: set[str] = set()
    for level in range(1 if required else keys + 1):
        counts: dict[Path, int] = defaultdict(int)
        for path in fixed:
            counts[path[level:]] += 1
        domains = _domains(rooms, level)
        for name in sorted(counts, key=lambda name: (-counts[name], name)):
            inside = [room for room in domains.get(name, ()) if room.node not in used]
            _absorb(found, classes, inside)
            used |= {room.node for room in inside}
    enough = all(one.count - found.left[one.name] >= one.least for one in classes)
    if required and not (found.placed and enough):
        return NoRoom(max(fixed, key=fixed.count, default=()), found.placed, wanted)
    return Choice(found.nodes, 0 if required else keys, whole=not any(found.left.values()))


def _domains(rooms: Sequence[Room], level: int) -> dict[Path, list[Room]]:
    """Return the rooms of each domain of a key. Level `number of keys` has one domain with all nodes. Nodes
    without a label of this or a farther key belong to no domain.
    """
    found: dict[Path, list[Room]] = defaultdict(list)
    for room in rooms:
        if all(room.path[level:]):
            found[room.path[level:]].append(room)
    return found


def _turn(attempt: str, name: Path) -> int:
    """Return a number that orders domains, in another order for each attempt; 0 for the first attempt."""
    return zlib.crc32(f"{attempt} {'/'.join(name)}".encode()) if attempt else 0


def _largest(
    classes: Sequence[PodClass], rooms: Sequence[Room], wanted: int, attempt: str
) -> Choice | NoRoom:
    """Return the domain of the first key with room for most pods, if it has room for the least number of
    each class.
    """
    fills = {name: _packed(classes, inside, 0) for name, inside in _domains(rooms, 0).items()}
    enough = [
        name
        for name, fill in fills.items()
        if all(one.count - fill.left[one.name] >= max(1, one.least) for one in classes)
    ]
    turn = attempt if enough else ""
    best = min(enough or fills, key=lambda name: (_turn(turn, name), -fills[name].placed, name), default=())
    if enough:
        return Choice(fills[best].nodes, 0, best, whole=False)
    return NoRoom(best, fills[best].placed if best else 0, wanted)


def _spare(classes: Sequence[PodClass], inside: Sequence[Room]) -> int:
    """Return how many pods of the first class the nodes hold."""
    first = classes[0]
    return sum(copies_that_fit(room.free, first.requests) for room in inside if first.name in room.classes)


def _packed(classes: Sequence[PodClass], rooms: Sequence[Room], level: int) -> _Fill:
    """Fill the domains of the next nearer key, those with most room first. Of the domains that hold all
    remaining pods, the smallest is the last.
    """
    found = _Fill(left={one.name: one.count for one in classes})
    groups: list[Sequence[Room]]
    if level:
        groups = [*_domains(rooms, level - 1).values()]
        groups += [[room] for room in rooms if not all(room.path[level - 1 :])]
    else:
        groups = [[room] for room in rooms]
    sized = [(_fill(classes, group).placed, number) for number, group in enumerate(groups)]
    ordered = deque(
        sorted(((size, number) for size, number in sized if size), key=lambda one: (-one[0], one[1]))
    )
    while any(found.left.values()) and ordered:
        rest = [one for one in (_remaining(one, found.left[one.name]) for one in classes) if one.count]
        last = _smallest_sufficient(rest, groups, ordered)
        _, number = ordered.popleft() if last is None else last
        best = groups[number]
        inner = _packed(rest, best, level - 1) if level else _fill(rest, best)
        for name, nodes in inner.nodes.items():
            found.nodes[name] += nodes
            found.left[name] -= len(nodes)
    return found


def _smallest_sufficient(
    rest: Sequence[PodClass], groups: Sequence[Sequence[Room]], ordered: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return the entry of `ordered` (size, number of the group) whose group is the smallest that holds all
    remaining pods; None if no group does. `ordered` begins with the largest.
    """
    wanted = sum(one.count for one in rest)
    large = list(takewhile(lambda one: one[0] >= wanted, ordered))
    for _, same in groupby(reversed(large), key=lambda one: one[0]):
        holds = [one for one in same if not any(_fill(rest, groups[one[1]]).left.values())]
        if holds:
            return min(holds, key=lambda one: (_spare(rest, groups[one[1]]), groups[one[1]][0].node))
    return None


def _absorb(found: _Fill, classes: Sequence[PodClass], inside: Sequence[Room]) -> None:
    """Add as many of the remaining pods as fit into the nodes, full nodes first."""
    rest = [one for one in (_remaining(one, found.left[one.name]) for one in classes) if one.count]
    if not rest or not inside:
        return
    fill = _packed(rest, inside, 0)
    for name, nodes in fill.nodes.items():
        found.nodes[name] += nodes
        found.left[name] -= len(nodes)


def _remaining(one: PodClass, count: int) -> PodClass:
    return PodClass(one.name, one.requests, count, min(one.least, count))


def _fill(classes: Sequence[PodClass], rooms: Sequence[Room]) -> _Fill:
    """Place as many pods as fit, in the order of the classes and of the nodes."""
    found = _Fill(left={one.name: one.count for one in classes})
    single = len(classes) == 1
    free = {} if single else {room.node: dict(room.free) for room in rooms}
    for one in classes:
        for room in rooms:
            if not found.left[one.name]:
                break
            if one.name not in room.classes:
                continue
            count = min(
                found.left[one.name],
                copies_that_fit(room.free if single else free[room.node], one.requests),
            )
            if count:
                found.nodes[one.name] += [room.node] * count
                found.left[one.name] -= count
                if not single:
                    subtract(free[room.node], {name: amount * count for name, amount in one.requests.items()})
    return found


def _hardest_first(classes: Sequence[PodClass], rooms: Sequence[Room]) -> list[PodClass]:
    """Return the classes in the order in which they are placed: first those that few nodes admit, then those
    with large requests.
    """

    def key(one: PodClass) -> tuple[object, ...]:
        admitted = sum(one.name in room.classes for room in rooms)
        return admitted, sorted(-amount for amount in one.requests.values()), one.name

    return sorted(classes, key=key)
