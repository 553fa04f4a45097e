"""Places missing pods near each other, and near the pods that are there.

The choice is made once, when the pods are created, from the room on all nodes. It is written into the pods as
node affinity. The scheduler makes the final decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.placement.affinity import pinned
from convoy_controllers.placement.forecast.candidates import Candidate
from convoy_controllers.placement.forecast.candidates import candidates as list_candidates
from convoy_controllers.placement.packing import Choice, NoRoom, PodClass, choose, near
from convoy_controllers.placement.requests import copies_that_fit, known_requests, pod_requests
from convoy_controllers.placement.rooms import (
    Rooms,
    admission_key,
    candidates,
    cluster_topology,
    shared,
    unknown_keys,
)
from convoy_controllers.placement.shortlist import shortlist
from convoy_controllers.placement.topology import Path, Topology, shown
from convoy_controllers.placement.waiting import RECHECK_SECONDS, drop, keep, known, recheck_seconds
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.placement import Pack, Packing
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ANNOTATION_PLANNED_NODE, LABEL_ROLE

_NO_ROOM_BESIDE = (
    "spec.placement.pack: Required: the other pods run in {key} {domain}, which has room for {holds} of the "
    "{wanted} missing pods now. Convoy creates the pods when there is room"
)


@dataclass(frozen=True, slots=True)
class Placed:
    """The pods to create, or the reason why none may be created yet."""

    pods: Sequence[dict[str, Any]] = ()
    held: Violation | None = None
    """Reason why the pods wait; None if they need not wait."""
    recheck_seconds: float = RECHECK_SECONDS
    """Seconds until the caller looks again, if the pods wait."""


def packs(packing: Packing) -> bool:
    """Return True if Convoy chooses where the pods run."""
    return bool(packing.topology_keys) and packing.pack is not Pack.NONE


def restricts(packing: Packing, *, first_attempt: bool) -> bool:
    """Return True if Convoy may have restricted pods to some domains."""
    return packs(packing) and (packing.pack is Pack.REQUIRED or first_attempt)


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Further conditions for the places of pods."""

    avoid: Collection[str] = ()
    """Nodes on which no pod should be placed."""
    spare: Mapping[str, int] = field(default_factory=dict)
    """Number of pods of each role without which the gang can run."""
    restricted: bool = True
    """True if `pack: Preferred` may restrict pods to the domains that kube-scheduler scores (see
    `shortlist`). It must not after a failed attempt, because the scheduler may have reasons against these
    domains that Convoy cannot see.
    """
    attempt: str = ""
    """Any text that differs from attempt to attempt, if an earlier one has failed; empty otherwise. With
    `pack: Required`, another attempt may then choose another domain.
    """
    best: Callable[[Sequence[Candidate]], Candidate | None] | None = None
    """Function that receives places for all pods of a gang that has none, and returns the one to prefer; None
    for the place that packing chooses.
    """


def place(
    packing: Packing,
    rooms: Rooms | None,
    create: Sequence[dict[str, Any]],
    staying: Collection[PodView],
    options: PlaceOptions = PlaceOptions(),
    now: float = 0.0,
) -> Placed:
    """Return the pods in `create` with node affinity for the chosen places.

    `staying`: pods of the same gang that stay. `now`: Unix seconds. Pods whose requests are malformed get no
    places, so that the API server refuses them.
    """
    if not create or not packs(packing) or any(known_requests(body["spec"]) is None for body in create):
        return Placed(create)
    if rooms is None:
        return Placed(held=_violation(Reasons.READING_ROOM, count=len(create)))
    if unknown := unknown_keys(packing.topology_keys, rooms):
        return Placed(held=_violation(Reasons.UNKNOWN_TOPOLOGY_KEY, keys=", ".join(unknown)))
    found = cluster_topology(packing.topology_keys, rooms)
    required = packing.pack is Pack.REQUIRED
    restricted = options.restricted and not required and not any(_failed(pod) for pod in staying)
    avoid, spare = frozenset(options.avoid), options.spare
    search = _Search(
        rooms,
        found,
        create,
        avoid,
        spare,
        required=required,
        restricted=restricted,
        attempt=options.attempt if required else "",
    )
    wait = recheck_seconds(rooms, f"{create[0]['metadata'].get('namespace')}/{create[0]['metadata']['name']}")
    key = search.key(staying)
    if (held := known(rooms, key)) is not None:
        return Placed(held=held, recheck_seconds=wait)
    choice = search.choose(staying)
    if options.best is not None and not staying and not options.attempt and not isinstance(choice, NoRoom):
        preferred = options.best(search.candidates(choice))
        choice = choice if preferred is None else preferred.choice
    if isinstance(choice, NoRoom):
        held = keep(rooms, key, search.explain(choice, joins=bool(staying)), now)
        return Placed(held=held, recheck_seconds=wait)
    drop(rooms, key)
    return Placed(search.pinned(choice))


def _violation(reason: Any, **facts: object) -> Violation:
    return Violation(reason, reason.format(**facts))


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the places of some pods of a gang."""

    rooms: Rooms
    topology: Topology
    create: Sequence[Mapping[str, Any]]
    avoid: frozenset[str]
    spare: Mapping[str, int]
    required: bool
    restricted: bool
    attempt: str

    def choose(self, staying: Collection[PodView]) -> Choice | NoRoom:
        """Return the places, near the pods that stay."""
        levels = len(self.topology.keys)
        fixed = self._fixed(staying)
        free = candidates(self.rooms, self.topology, self._specs, self.avoid, empty=False)
        if fixed:
            return near(self._classes, free, levels, fixed, required=self.required)
        return choose(self._classes, free, levels, required=self.required, attempt=self.attempt)

    def candidates(self, packed: Choice) -> list[Candidate]:
        """Return places for all pods, first `packed`, the one that packing chooses."""
        free = candidates(self.rooms, self.topology, self._specs, self.avoid, empty=False)
        return list_candidates(packed, self._classes, free, len(self.topology.keys), required=self.required)

    def _fixed(self, staying: Collection[PodView]) -> list[Path]:
        """Return the domain paths of the nodes of the pods that stay."""
        return [self.topology.path(node) for pod in staying if (node := _node_of(pod))]

    def key(self, staying: Collection[PodView]) -> Hashable:
        """Return all facts about the pods on which the result depends. Searches with the same key have the
        same result.
        """
        pods = tuple(
            (one.name, tuple(sorted(one.requests.items())), one.count, one.least) for one in self._classes
        )
        admitted = tuple((name, admission_key(spec)) for name, spec in self._specs.items())
        fixed = tuple(sorted(self._fixed(staying)))
        return self.topology.keys, self.required, pods, admitted, self.avoid, fixed, bool(staying)

    def pinned(self, choice: Choice) -> list[dict[str, Any]]:
        """Return the pods with their places. Pods without a place get the domain that the others share. With
        `required`, pods that would join others are left out if their domain has no room for them.
        """
        found = self.topology
        left = {name: list(nodes) for name, nodes in choice.nodes.items()}
        room = self._room() if self.restricted else {}
        shared: Path = ("",) * (len(found.keys) - len(choice.domain)) + choice.domain
        lists: dict[tuple[str, Path], list[str]] = {}
        placed = []
        for body in self.create:
            role = _role(body)
            nodes = left.get(role)
            node = nodes.pop(0) if nodes else ""
            if self.required and not node and not choice.domain:
                continue
            path = found.path(node) if node else shared
            if node and room and (role, path) not in lists:
                lists[role, path] = shortlist(path, found, room[role])
            within = lists.get((role, path), []) if node else []
            placed.append(pinned(body, found.keys, path, node, required=self.required, within=within))
        return placed

    def _room(self) -> dict[str, Counter[Path]]:
        """Return the number of pods that fit, by role and domain path."""
        classes = self._classes
        counts: dict[str, Counter[Path]] = {one.name: Counter() for one in classes}
        for room in candidates(self.rooms, self.topology, self._specs, self.avoid, empty=False):
            for one in classes:
                if one.name in room.classes:
                    counts[one.name][room.path] += copies_that_fit(room.free, one.requests)
        return counts

    def explain(self, no_room: NoRoom, *, joins: bool) -> Violation:
        """Return why the job waits: there is no room now, or there never can be."""
        facts: dict[str, object] = {"key": self.topology.keys[0], "wanted": no_room.wanted}
        if joins:
            facts |= {"domain": _shown(no_room.largest), "holds": no_room.holds}
            return Violation(Reasons.NO_ROOM_TOGETHER, _NO_ROOM_BESIDE.format(**facts))
        best = shared(self.rooms, ("empty", self.key(())), self._best_when_empty, nodes_only=True)
        if isinstance(best, NoRoom):
            facts |= {"largest": _shown(best.largest), "holds": best.holds}
            return _violation(Reasons.NEVER_TOGETHER, **facts)
        facts |= {"largest": _shown(no_room.largest), "holds": no_room.holds}
        return _violation(Reasons.NO_ROOM_TOGETHER, **facts)

    def _best_when_empty(self) -> Choice | NoRoom:
        """Return the places that the pods would get if no other pod ran."""
        empty = candidates(self.rooms, self.topology, self._specs, frozenset(), empty=True)
        return choose(self._classes, empty, len(self.topology.keys), required=True)

    @property
    def _specs(self) -> dict[str, Mapping[str, Any]]:
        """Return the spec of a pod of each role."""
        return {_role(body): body["spec"] for body in reversed(self.create)}

    @property
    def _classes(self) -> list[PodClass]:
        counts = Counter(map(_role, self.create))
        return [
            PodClass(name, pod_requests(spec), counts[name], max(0, counts[name] - self.spare.get(name, 0)))
            for name, spec in self._specs.items()
        ]


def _role(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["labels"][LABEL_ROLE])


def _failed(pod: PodView) -> bool:
    """Return True if the scheduler has found no node for a pod."""
    return bool(pod.unschedulable) and not pod.node


def _node_of(pod: PodView) -> str:
    """Return the node of a pod, or the one that Convoy chose for it."""
    return pod.node or pod.annotations.get(ANNOTATION_PLANNED_NODE, "")


def _shown(domain: Path) -> str:
    return shown(domain) or "no domain"
