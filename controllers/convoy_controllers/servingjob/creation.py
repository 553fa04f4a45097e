"""Creates the pods that replicas lack. The pods of a replica start as one gang, near each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convoy_controllers.children import Create
from convoy_controllers.placement import gang_state
from convoy_controllers.placement.gang_state import AFTER_GROUP_SECONDS
from convoy_controllers.placement.placing import Placed, PlaceOptions, packs, place
from convoy_controllers.placement.requests import known_requests
from convoy_controllers.placement.rooms import Rooms, with_pods
from convoy_controllers.resources import PODS
from convoy_controllers.servingjob import gangs, moving, repair, restarts, units
from convoy_controllers.servingjob.groups import Group, slots
from convoy_controllers.servingjob.pods import pod
from convoy_controllers.servingjob.revision import Revision
from convoy_controllers.servingjob.work import Work
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod import with_incarnation
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot
from convoy_crds.placement import Pack
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ANNOTATION_PLANNED_NODE

MAX_SEARCHES = 32
"""Maximum number of replicas for which one plan searches room. The next plan goes on."""
NEXT_SEARCH_SECONDS = 0.1
READING_SECONDS = 1.0
"""Seconds until Convoy looks again whether it knows the pods of the cluster."""


def create_missing(work: Work) -> None:
    """Add the pods that the groups lack. During a back-off nothing is created, because a pod that fails at
    once would be recreated in a tight loop.
    """
    deleted = {one.name for one in work.deletions if one.grace_seconds == 0}
    taken = {one.name for one in work.observed.pods} - deleted
    avoid = frozenset({*work.lost.all, *moving.unhealthy(work.observed)})
    search, tried = _Search(work, avoid, work.observed.rooms, taken), set[tuple[str, str]]()
    for key, group in list(work.groups.items()):
        revision = work.revisions.get(group.record.revision)
        lacking = _lacking(work, group, taken)
        placed = _placed(work, search, group, revision, lacking) if lacking and revision else Placed()
        if placed.held is not None:
            _hold(work, group, placed.held, placed.recheck_seconds)
        no_room = placed.held is not None and placed.held.reason is Reasons.NO_ROOM_TOGETHER
        record = work.groups[key].record
        if record.no_room != no_room:
            fresh = record.model_copy(update={"no_room": no_room})
            work.groups[key] = replace(work.groups[key], record=fresh)
        for body in placed.pods:
            kind = (record.role, record.revision)
            work.creations.append(Create(PODS, body, dry_run=kind not in tried and _untried(work, *kind)))
            tried.add(kind)


def first_held(work: Work) -> Violation | None:
    """Return the first replica whose pods are not created yet, with the reason; None if there is none."""
    for key, held in sorted(work.held.items()):
        return replace(held, message=f"replica {work.groups[key].name}: {held.message}")
    return None


def _lacking(work: Work, group: Group, taken: set[str]) -> list[Slot]:
    """Return the slots without a pod that may be created now."""
    record = group.record
    if record.failed or restarts.pause_seconds(record, work.now) > 0:
        return []
    return [
        one
        for one in _slots(work, group)
        if one.pod not in taken and one.pod not in work.observed.create_errors
    ]


def _hold(work: Work, group: Group, held: Violation, wait: float) -> None:
    work.held[group.key] = held
    work.waits.append(READING_SECONDS if held.reason is Reasons.READING_ROOM else wait)


def _placed(work: Work, search: _Search, group: Group, revision: Revision, lacking: Sequence[Slot]) -> Placed:
    """Return the pods of these slots with their places, and store the replica's gang in its record."""
    deleted = {one.uid for one in work.deletions}
    staying = [one for one in gang_state.live(group.pods.values()) if one.uid not in deleted]
    group, held = gangs.select(work, group, revision, staying)
    work.groups[group.key] = group
    known = gangs.gang_of(work, group, revision)
    held = held or (gang_state.refused(known, work.observed.create_errors) if known else None)
    if held is not None:
        return Placed(held=held)
    raw = gang_state.find(work.observed.gang_objects, known.gang.name) if known else None
    if known is not None and raw is None:
        # The response to the apply of the PodGroup shows which of its fields the API server keeps.
        work.waits.append(AFTER_GROUP_SECONDS)
        return Placed()
    bodies = [
        with_incarnation(
            pod(work.observed.job, revision, slot, known), group.record.incarnation, search.avoid
        )
        for slot in lacking
    ]
    if group.size < 2 or (known is not None and gang_state.chooses_domain(known, raw)):
        return Placed(bodies)
    if not staying and search.waits_for_names(group):
        return Placed()
    found = search.place(group, bodies, staying)
    if staying and found.held is not None and found.held.reason is Reasons.NO_ROOM_TOGETHER:
        whole = [pod(work.observed.job, revision, slot, known) for slot in _slots(work, group)]
        if _moves(work, search, group, whole, staying):
            work.deletions += repair.delete_all(group)
    return found


def _slots(work: Work, group: Group) -> Sequence[Slot]:
    return slots(work.observed.job.metadata.name, group.record, group.size)


def _moves(
    work: Work, search: _Search, group: Group, whole: Sequence[dict[str, Any]], staying: Sequence[PodView]
) -> bool:
    """Return True if a replica without room for a missing pod gives up its other pods: another domain has
    room for all of them, or they have idled on their nodes for long. `whole`: all pods of the replica.
    """
    if group.record.membership:
        return False
    return units.down(group, work.now, no_model=False) or search.fits_without(whole, staying)


@dataclass(slots=True)
class _Search:
    """The search for the places of all replicas in one plan. Each replica finds less room than the one
    before.
    """

    work: Work
    avoid: frozenset[str]
    rooms: Rooms | None
    taken: set[str]
    """Names of the pods that exist."""
    count: int = 0
    futile: dict[tuple[str, str, int], Violation] = field(default_factory=dict)
    """Reason why there is no room for a whole replica, by role, revision and number of pods."""

    def place(self, group: Group, bodies: Sequence[dict[str, Any]], staying: Sequence[PodView]) -> Placed:
        """Return the pods with their places, near those that stay."""
        packing = self.work.observed.job.spec.placement
        if not packs(packing):
            return Placed(bodies)
        family = (group.record.role, group.record.revision, len(bodies))
        if not staying and (known := self.futile.get(family)):
            return Placed(held=known)
        if self.count >= MAX_SEARCHES:
            self.work.waits.append(NEXT_SEARCH_SECONDS)
            return Placed()
        self.count += self.rooms is not None
        # A replica has no schedule deadline after which a second attempt would be without restriction.
        options = PlaceOptions(avoid=self.avoid, restricted=False)
        found = place(packing, self.rooms, bodies, staying, options, self.work.now.timestamp())
        if found.held is not None and not staying:
            self.futile[family] = found.held
        self._occupy(found.pods)
        return found

    def waits_for_names(self, group: Group) -> bool:
        """Return True if pods of a replica still end, so that its pods cannot be placed together yet."""
        required = self.work.observed.job.spec.placement.pack is Pack.REQUIRED
        return required and any(one.name in self.taken for one in group.pods.values())

    def fits_without(self, whole: Sequence[dict[str, Any]], leaving: Sequence[PodView]) -> bool:
        """Return True if one domain has room for all pods of a replica once the pods `leaving` have left."""
        if self.rooms is None or self.count >= MAX_SEARCHES:
            return False
        self.count += 1
        freed = {name: -amount for name, amount in (known_requests(whole[0]["spec"]) or {}).items()}
        nodes = (one.node or one.annotations.get(ANNOTATION_PLANNED_NODE, "") for one in leaving)
        rooms = with_pods(self.rooms, [(node, freed) for node in nodes])
        packing, options = self.work.observed.job.spec.placement, PlaceOptions(avoid=self.avoid)
        return place(packing, rooms, whole, (), options).held is None

    def _occupy(self, bodies: Sequence[dict[str, Any]]) -> None:
        if self.rooms is None:
            return
        nodes = (body["metadata"].get("annotations", {}).get(ANNOTATION_PLANNED_NODE, "") for body in bodies)
        planned = [
            (node, known_requests(body["spec"]) or {})
            for node, body in zip(nodes, bodies, strict=True)
            if node
        ]
        self.rooms = with_pods(self.rooms, planned)


def _untried(work: Work, role: str, name: str) -> bool:
    """Return True if the API server may not have accepted a pod of this revision's template yet."""
    known = work.revisions[name].spec.role(role)
    stored = any(one.name == name for one in work.observed.revisions)
    return not stored and known is not None and known.template is not None
