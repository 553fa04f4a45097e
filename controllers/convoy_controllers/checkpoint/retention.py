"""Decides which parts of a job's state to delete, in node memory and in a remote store. Pure.

Node memory is reserved in advance, so everything that is not needed is dropped at once. A remote store is
garbage-collected at intervals. A generation at a watermark is deleted only after a newer generation is
complete at the same tier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import lineage, newest_incarnation
from convoy_controllers.checkpoint.records import Inventory, Manifest

KEEP_REMOTE = 2
"""Default number of generations to keep in a remote store."""

Watermarks = Mapping[Tier, Generation]
"""The newest complete generation of each tier. A watermark never goes back to an older generation."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The generations that a remote store keeps. Generations that are being restored are kept as well."""

    last: int = KEEP_REMOTE
    """Number of newest generations of the line to keep."""
    every_steps: int = 0
    """Number of steps; 0 for none. For each multiple of this number, the first generation of the line at or
    after that step is kept as well.
    """


@dataclass(frozen=True, slots=True)
class Garbage:
    """The objects to delete, in the order of the fields. Records are deleted first, so that a partly
    deleted generation never looks complete.
    """

    records: tuple[Generation, ...] = ()
    branches: tuple[int, ...] = ()
    manifests: frozenset[str] = field(default_factory=frozenset)
    chunks: frozenset[str] = field(default_factory=frozenset)


def advance(marks: Watermarks, tier: Tier, generation: Generation) -> dict[Tier, Generation]:
    """Return the watermarks after `generation` has become complete at `tier`. An older generation changes
    nothing.
    """
    found = dict(marks)
    known = found.get(tier)
    if known is None or generation > known:
        found[tier] = generation
    return found


def reachable(heads: Collection[str], manifests: Mapping[str, Manifest]) -> set[str]:
    """Return the ids in `heads`, and the ids of all manifests that they extend. A chain ends at a manifest
    that is not in `manifests`.
    """
    found: set[str] = set()
    waiting = list(heads)
    while waiting:
        at = waiting.pop()
        if at in found:
            continue
        found.add(at)
        link = manifests.get(at)
        if link is not None and link.extends is not None:
            waiting.append(link.extends)
    return found


def needed(held: Inventory, marks: Watermarks, incarnation: int, given_up: Collection[str] = ()) -> set[str]:
    """Return the ids of the manifests that a node's memory must keep: all that are newer than the peer
    watermark, and all that a watermark points to.

    The generation at the local watermark alone is not enough, because it may be lost with its nodes before
    it has copies. A copy that is newer than the peer watermark must also stay, because its owner may not
    know yet that the copy is complete. The generation that this incarnation restored must stay as well. It
    is copied like a save of the incarnation. The local watermark may already be at a newer generation when
    these copies are complete. The restored generation then becomes the peer watermark. If the job keeps no
    copies, the peer watermark is always equal to the local one.

    `given_up` are the ids of manifests that their owner has withdrawn. They are dropped unless a watermark
    points to them or the incarnation restored them.
    """
    heads: set[str] = set()
    for tier in (Tier.LOCAL, Tier.PEER):
        record = held.records.get(marks[tier]) if tier in marks else None
        if record is not None:
            heads.update(record.shards.values())
    floor = marks.get(Tier.PEER)
    branch = held.branches.get(incarnation)
    start = branch.parent if branch is not None and branch.decided else None
    heads.update(
        key
        for key, one in held.manifests.items()
        if (floor is None or one.generation > floor)
        and (one.generation == start or (one.generation.incarnation >= incarnation and key not in given_up))
    )
    return reachable(heads, held.manifests)


def memory_garbage(
    held: Inventory, marks: Watermarks, incarnation: int, given_up: Collection[str] = ()
) -> Garbage:
    """Return the objects that a node's memory may drop."""
    kept = needed(held, marks, incarnation, given_up)
    stands = {marks[tier] for tier in (Tier.LOCAL, Tier.PEER) if tier in marks}
    used = stands | {held.manifests[key].generation for key in kept if key in held.manifests}
    floor = marks.get(Tier.PEER)
    first = min((one.incarnation for one in used), default=0)
    return Garbage(
        records=tuple(
            sorted(one for one in held.records if floor is not None and one < floor and one not in used)
        ),
        branches=tuple(sorted(number for number in held.branches if number < min(first, incarnation))),
        manifests=frozenset(set(held.manifests) - kept),
    )


def remote_garbage(
    stored: Inventory,
    chunks: Mapping[str, float],
    keep: Keep,
    now: float,
    grace_seconds: float,
    pinned: Collection[Generation] = (),
) -> Garbage:
    """Return the objects of one job that a remote store may delete.

    `chunks` has the Unix time at which each chunk was last written, by digest. An uploader that needs a
    stored chunk again sets this time to now. A chunk that was written less than `grace_seconds` ago stays,
    because the record of its generation may not be written yet. `pinned` generations are being restored, by
    this job or by another.
    """
    line = lineage(stored.records.values(), stored.branches.values())
    if not line:
        return Garbage()
    kept = {one.generation for one in line[: max(1, keep.last)]} | set(pinned)
    if keep.every_steps:
        firsts: dict[int, Generation] = {}
        for one in reversed(line):
            firsts.setdefault(one.generation.step // keep.every_steps, one.generation)
        kept |= set(firsts.values())
    # Generations newer than the line are kept. They may belong to a later incarnation whose branch is not
    # decided yet.
    newest = line[0].generation
    garbage = [one for one in stored.records if one not in kept and one < newest]
    heads = {
        head for one, found in stored.records.items() if one not in garbage for head in found.shards.values()
    }
    alive = reachable(heads, stored.manifests)
    used = {
        chunk.digest for key in alive if key in stored.manifests for chunk in stored.manifests[key].chunks
    }
    old = {digest for digest, written in chunks.items() if now - written > grace_seconds}
    first = min((one.incarnation for one in stored.records if one not in garbage), default=0)
    last = newest_incarnation(stored.records.values(), stored.branches.values())
    return Garbage(
        records=tuple(sorted(garbage)),
        branches=tuple(sorted(number for number in stored.branches if number < min(first, last))),
        manifests=frozenset(
            key for key, one in stored.manifests.items() if key not in alive and one.generation < newest
        ),
        chunks=frozenset(old - used),
    )
