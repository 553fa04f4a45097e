"""What of a job's state may go, in a node's memory and in a remote store. Pure.

Memory is reserved in advance, so what is not needed makes room at once; a remote store is swept now and then.
Neither ever drops what a watermark stands on before a newer generation stands at the same tier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import lineage, newest_incarnation
from convoy_controllers.checkpoint.records import Inventory, Manifest

KEEP_REMOTE = 2
"""Generations kept in a remote store unless its spec says otherwise."""

Watermarks = Mapping[Tier, Generation]
"""The newest generation that is whole at each tier. They only grow."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What a remote store keeps besides what is being restored."""

    last: int = KEEP_REMOTE
    """Newest generations of the line."""
    every_steps: int = 0
    """Also each that is the first to reach another multiple of so many steps; 0 for none."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What may be deleted, in this order: a record first, so that nothing half deleted looks whole."""

    records: tuple[Generation, ...] = ()
    branches: tuple[int, ...] = ()
    manifests: frozenset[str] = field(default_factory=frozenset)
    chunks: frozenset[str] = field(default_factory=frozenset)


def advance(marks: Watermarks, tier: Tier, generation: Generation) -> dict[Tier, Generation]:
    """The watermarks once `generation` is whole at `tier`; an older one changes nothing."""
    found = dict(marks)
    known = found.get(tier)
    if known is None or generation > known:
        found[tier] = generation
    return found


def reachable(heads: Collection[str], manifests: Mapping[str, Manifest]) -> set[str]:
    """Ids of these manifests and of all that they extend, as far as they are known."""
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
    """Ids of the manifests that a node's memory keeps: nothing goes that the peer watermark has not passed.

    The local watermark is not enough: its shards may be lost with their nodes before they have copies. Nor
    may a copy go that is newer than what the watermark stands on: its owner may just hear that it is there.
    What this incarnation was restored from gets copies like its own saves, and may come to stand as they do,
    after the local watermark has passed it. Where no copies are made the peer watermark goes with the local
    one. `given_up`: shards that their owner has withdrawn; they go unless a watermark stands on them already,
    or they were restored.
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
    """What a node's memory may drop."""
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
    """What of one job a remote store may delete.

    `chunks`: when each was last written or promised to somebody who uploads, in Unix seconds. One that is
    younger than `grace_seconds` may belong to a generation whose record comes later. `pinned`: being
    restored, by this job or by another.
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
    # A later incarnation may have begun, and not yet said where.
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
