"""From which generation an incarnation goes on, and where each shard is read. Pure.

The newest generation of the line wins for which every shard is whole somewhere: its base and every journal
segment since. What is newer but not whole is skipped over, and it is said which shard was missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import beginnings, lineage
from convoy_controllers.checkpoint.records import Inventory, Manifest, Record, merge
from convoy_controllers.checkpoint.retention import Watermarks

REMOTE = ""
"""The place of what lies in the remote store; all others are names of nodes."""
MAX_CHAIN = 1024
"""Manifests from a segment to its base; a longer chain is corrupt."""


@dataclass(frozen=True, slots=True)
class Link:
    """One manifest of a chain, and who has its bytes."""

    manifest: Manifest
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkippedGeneration:
    """A newer generation that cannot be restored, and the shard that is missing."""

    generation: Generation
    shard: str
    missing: Generation
    """The link of that shard's chain that nobody has."""


@dataclass(frozen=True, slots=True)
class Restore:
    """What is read."""

    record: Record
    shards: Mapping[str, tuple[Link, ...]]
    """By the shard's name; base first."""
    skipped: tuple[SkippedGeneration, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """There were generations, and none is whole any more."""

    skipped: tuple[SkippedGeneration, ...]


def plan(held: Mapping[str, Inventory], broken: Collection[tuple[str, str]] = ()) -> Restore | Lost | None:
    """What to restore, given what each place holds; None when nothing was ever committed.

    `broken`: (place, manifest id) found damaged while it was read.
    """
    known, places = merge(held.values()), _places(held, broken)
    skipped: list[SkippedGeneration] = []
    for record in lineage(known.records.values(), known.branches.values()):
        found = _shards(record, known.manifests, places)
        if not isinstance(found, SkippedGeneration):
            return Restore(record, found, tuple(skipped))
        skipped.append(found)
    return Lost(tuple(skipped)) if skipped else None


def initial_watermarks(
    held: Mapping[str, Inventory], chosen: Record, reported: Iterable[Watermarks]
) -> dict[Tier, Generation]:
    """The watermarks that an incarnation begins with, which goes on from `chosen`.

    That stands nowhere but where it was found: the peer watermark stays on the newest generation of the line
    that somebody was reported has its copies, so that this is kept until a newer one has.
    """
    known = merge(held.values())
    line = {one.generation for one in lineage(known.records.values(), known.branches.values())}
    copied = [marks[Tier.PEER] for marks in reported if Tier.PEER in marks]
    peer = max((one for one in copied if one in line and one <= chosen.generation), default=None)
    return {Tier.LOCAL: chosen.generation} | ({Tier.PEER: peer} if peer is not None else {})


def unknown_incarnations(held: Mapping[str, Inventory], incarnation: int) -> list[int]:
    """Incarnations before this one of which nobody asked knows where they began.

    They may never have begun. But while somebody could not be asked, an older state must not be taken for
    the newest: whoever knows better may be among those.
    """
    known = merge(held.values())
    begun = set(beginnings(known.branches.values())) | {one.incarnation for one in known.records}
    newest = max((number for number in begun if number < incarnation), default=0)
    return list(range(newest + 1, incarnation))


def may_be_outdated(
    held: Mapping[str, Inventory], incarnation: int, broken: Collection[tuple[str, str]] = ()
) -> bool:
    """Whether somebody who was not heard may have something newer than what would be chosen: who knows of an
    incarnation that is unheard of, or has the bytes of a generation that is not whole.
    """
    chosen = plan(held, broken)
    if not isinstance(chosen, Restore) or chosen.skipped:
        return True
    return bool(unknown_incarnations(held, incarnation))


def chain(manifests: Mapping[str, Manifest], head: str) -> list[Manifest] | None:
    """From the base to this manifest; None where a link is unknown or the chain does not grow in steps."""
    found: list[Manifest] = []
    at: str | None = head
    while at is not None:
        link = manifests.get(at)
        if link is None or len(found) >= MAX_CHAIN:
            return None
        if found and (link.generation >= found[-1].generation or link.shard != found[-1].shard):
            return None
        found.append(link)
        at = link.extends
    return found[::-1]


def read_order(places: Sequence[str], node: str, salt: int = 0) -> list[str]:
    """Whom `node` asks first: itself, then the other nodes in turns, the remote store last."""
    others = sorted(place for place in places if place not in (node, REMOTE))
    turn = salt % len(others) if others else 0
    own = [node] if node in places else []
    return [*own, *others[turn:], *others[:turn], *([REMOTE] if REMOTE in places else [])]


def _places(held: Mapping[str, Inventory], broken: Collection[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for place in sorted(held):
        for key in held[place].manifests:
            if (place, key) not in broken:
                found.setdefault(key, []).append(place)
    return {key: tuple(places) for key, places in found.items()}


def _shards(
    record: Record, manifests: Mapping[str, Manifest], places: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[Link, ...]] | SkippedGeneration:
    found: dict[str, tuple[Link, ...]] = {}
    for shard, head in sorted(record.shards.items()):
        links = chain(manifests, head)
        if links is None:
            return SkippedGeneration(record.generation, shard, record.generation)
        for link in links:
            if not places.get(link.id):
                return SkippedGeneration(record.generation, shard, link.generation)
        found[shard] = tuple(Link(link, places[link.id]) for link in links)
    return found
