"""Decides which generation an incarnation restores, and from which places it reads each shard. Pure.

The incarnation restores the newest complete generation of the line. A generation is complete if, for every
shard, some place has the base and every later journal segment. Newer, incomplete generations are skipped.
The result names the missing shard of each skipped generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import beginnings, lineage
from convoy_controllers.checkpoint.records import Inventory, Manifest, Record, merge
from convoy_controllers.checkpoint.retention import Watermarks

REMOTE = ""
"""Name that stands for the remote store in lists of places. All other places are nodes, with their node
names.
"""
MAX_CHAIN = 1024
"""Maximum number of manifests from a journal segment to its base. A longer chain is corrupt."""


@dataclass(frozen=True, slots=True)
class Link:
    """One manifest of a shard's chain (a base and its journal segments), and the places that have its
    chunks.
    """

    manifest: Manifest
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkippedGeneration:
    """A generation that is newer than the restored one but incomplete, and its first missing shard."""

    generation: Generation
    shard: str
    missing: Generation
    """Generation that the missing manifest belongs to. The manifest is part of the shard's chain, and no
    place has it.
    """


@dataclass(frozen=True, slots=True)
class Restore:
    """The generation to restore, with the places to read it from."""

    record: Record
    shards: Mapping[str, tuple[Link, ...]]
    """The chain of each shard, base first, by name of the shard."""
    skipped: tuple[SkippedGeneration, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """The result if generations were committed but none of them can be restored."""

    skipped: tuple[SkippedGeneration, ...]


def plan(held: Mapping[str, Inventory], broken: Collection[tuple[str, str]] = ()) -> Restore | Lost | None:
    """Return the generation to restore, given the inventory of each place; None if no generation was ever
    committed.

    `broken` lists damaged manifests, as pairs of place and manifest id.
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
    """Return the first watermarks of an incarnation that restores `chosen`.

    The restored generation may have no copies, so it sets only the local watermark. The peer watermark
    stays on the newest generation of the line that an agent reported as copied. That generation is kept
    until a newer one is copied.
    """
    known = merge(held.values())
    line = {one.generation for one in lineage(known.records.values(), known.branches.values())}
    copied = [marks[Tier.PEER] for marks in reported if Tier.PEER in marks]
    peer = max((one for one in copied if one in line and one <= chosen.generation), default=None)
    return {Tier.LOCAL: chosen.generation} | ({Tier.PEER: peer} if peer is not None else {})


def unknown_incarnations(held: Mapping[str, Inventory], incarnation: int) -> list[int]:
    """Return the earlier incarnations for which no reply names the generation they started from.

    Such an incarnation may never have started. But a node that has not replied may know of it, and may have
    a newer state. Until all nodes have replied, an older state must therefore not be restored.
    """
    known = merge(held.values())
    begun = set(beginnings(known.branches.values())) | {one.incarnation for one in known.records}
    newest = max((number for number in begun if number < incarnation), default=0)
    return list(range(newest + 1, incarnation))


def may_be_outdated(
    held: Mapping[str, Inventory], incarnation: int, broken: Collection[tuple[str, str]] = ()
) -> bool:
    """Return True if a node that has not replied may have a newer state than the one to restore.

    The node may know of an unknown incarnation, or may have the missing bytes of an incomplete generation.
    """
    chosen = plan(held, broken)
    if not isinstance(chosen, Restore) or chosen.skipped:
        return True
    return bool(unknown_incarnations(held, incarnation))


def chain(manifests: Mapping[str, Manifest], head: str) -> list[Manifest] | None:
    """Return the manifests from the base to the manifest `head`. Return None if one is missing or the chain
    is corrupt.
    """
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
    """Return the places in the order in which `node` reads: the node itself, the other nodes rotated by
    `salt`, the remote store.
    """
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
