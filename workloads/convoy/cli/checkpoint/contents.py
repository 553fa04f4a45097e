"""The objects that one job has in a store: its generations, and damaged or missing objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from convoy_controllers.checkpoint import restore, retention
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.lineage import lineage
from convoy_controllers.checkpoint.records import Chunk, Inventory, Record
from convoy_controllers.checkpoint.restore import REMOTE, Lost, Restore

if TYPE_CHECKING:
    from convoy_agents.tiercheck.stores.blobs import Listing

MAX_NAMED_SHARDS = 3
"""Maximum number of shards to name in the line about one damaged or missing object."""
_LABEL = re.compile(r"(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True)
class Contents:
    """The objects that one job has in a store."""

    inventory: Inventory
    """The records, branches and manifests that could be read."""
    chunks: Listing
    manifests: Listing
    malformed: tuple[str, ...] = ()
    """One line for each object that could not be read."""


@dataclass(frozen=True)
class Row:
    """One row of the table that `convoy checkpoint ls` prints: one generation in the store."""

    generation: Generation
    saved: datetime | None
    shards: int
    world: int
    torch: str
    bytes: int
    """Number of bytes in the store that the generation needs. Each chunk counts once."""
    new_bytes: int
    """Number of bytes in the store that this generation needs but the next older generation in the store
    does not need.
    """
    in_lineage: bool
    """True if the generation is in the lineage of the run. False if a later incarnation continued from an
    older generation, so the job never restores this one.
    """
    whole: bool
    """True if all objects that the generation needs are in the store and have the right size."""
    restored: bool
    """True if the next incarnation restores this generation, provided that no node has a checkpoint in
    memory.
    """


@dataclass(frozen=True)
class Fault:
    """An object that a generation needs and that is missing or damaged."""

    generation: Generation
    shard: str
    what: str
    missing: bool
    """True if the object is missing; False if it is damaged."""


def label(generation: Generation) -> str:
    """Return the label of a generation: its incarnation and step, such as `2/1500`."""
    return f"{generation.incarnation}/{generation.step}"


def parse_label(text: str) -> Generation | None:
    """Return the generation of a label such as `2/1500`; None for any other text."""
    match = _LABEL.fullmatch(text)
    return Generation(int(match[1]), int(match[2])) if match else None


def rows(contents: Contents) -> list[Row]:
    """Return the rows of all generations, newest first."""
    inventory = contents.inventory
    line = {one.generation for one in run_lineage(inventory)}
    plan = choose_generation(contents)
    restored = plan.record.generation if isinstance(plan, Restore) else None
    found: list[Row] = []
    before: Mapping[str, int] = {}
    for generation in sorted(inventory.records):
        record = inventory.records[generation]
        needed = chunk_lengths(inventory, record)
        own = {digest: contents.chunks.sizes.get(digest, length) for digest, length in needed.items()}
        found.append(
            Row(
                generation=generation,
                saved=_timestamp(record.saved),
                shards=len(record.shards),
                world=record.world,
                torch=record.torch,
                bytes=sum(own.values()),
                new_bytes=sum(length for digest, length in own.items() if digest not in before),
                in_lineage=generation in line,
                whole=not faults(contents, record),
                restored=generation == restored,
            )
        )
        before = own
    return found[::-1]


def run_lineage(inventory: Inventory) -> list[Record]:
    """Return the records of the generations in the lineage of the run, newest first."""
    return lineage(inventory.records.values(), inventory.branches.values())


def chunk_lengths(inventory: Inventory, record: Record) -> dict[str, int]:
    """Return the chunks that a generation needs: the digest of each chunk, with the length in bytes of its
    decoded data. If a manifest cannot be read, its chunks are left out.
    """
    keys = retention.reachable(record.shards.values(), inventory.manifests)
    known = (inventory.manifests[key] for key in keys if key in inventory.manifests)
    return {chunk.digest: chunk.length for one in known for chunk in one.chunks}


def choose_generation(
    contents: Contents, which: Generation | None = None, broken: Collection[tuple[str, str]] = ()
) -> Restore | Lost | None:
    """Return the plan to restore the generation `which`. If `which` is None, return the plan to restore the
    newest whole generation of the run.

    `broken` lists manifests whose data was found damaged, as pairs of tier (always `REMOTE`) and manifest
    id. Returns None if there is no generation, and Lost if no generation is whole.
    """
    inventory = readable_inventory(contents)
    if which is not None:
        record = inventory.records.get(which)
        inventory = Inventory({} if record is None else {which: record}, {}, inventory.manifests)
    return restore.plan({REMOTE: inventory}, broken)


def refusal(name: str, which: Generation | None, found: Lost | None) -> str:
    """Return the reason why the generation `which` of the job `name` cannot be restored. If `which` is
    None, return the reason why no generation can be restored.
    """
    if found is not None:
        verdict = f"no generation of {name} is" if which is None else f"{label(which)} of {name} is not"
        return f"{verdict} whole: {describe_skipped(found)}"
    if which is None:
        return f"the store has no generation of {name}"
    known = f"`convoy checkpoint ls {name}` lists its generations"
    return f"the store has no generation {label(which)} of {name}; {known}"


def describe_skipped(found: Restore | Lost) -> str:
    """Return a text that names the newer generations that are not whole, and the shard that each lacks.
    Return an empty text if no generation was skipped.
    """
    return "; ".join(
        f"{label(one.generation)} lacks shard {one.shard} of {label(one.missing)}" for one in found.skipped
    )


def newest_base(contents: Contents) -> Generation | None:
    """Return the newest generation of the run that is whole and has no journal; None if there is none."""
    for record in run_lineage(contents.inventory):
        plan = choose_generation(contents, record.generation)
        if isinstance(plan, Restore) and not ends_in_journal(plan):
            return record.generation
    return None


def ends_in_journal(plan: Restore) -> bool:
    """Return True if any shard of the plan has journal segments after its base."""
    return any(len(links) > 1 for links in plan.shards.values())


def to_verify(contents: Contents, which: Generation | None, everything: bool) -> list[Record]:
    """Return the records of the generations to verify, newest first.

    If `everything` is True, these are all records. Otherwise it is the record of the generation `which`, or
    of the newest generation of the run if `which` is None.
    """
    found = contents.inventory.records
    if everything:
        return [found[one] for one in sorted(found, reverse=True)]
    if which is not None:
        return [found[which]] if which in found else []
    return run_lineage(contents.inventory)[:1]


def stored_chunks(contents: Contents, records: Iterable[Record]) -> list[Chunk]:
    """Return the chunks that the records need and that the store has with the right size. Each chunk occurs
    once.
    """
    found: dict[str, int] = {}
    for record in records:
        found |= chunk_lengths(contents.inventory, record)
    every = (Chunk(digest, length) for digest, length in sorted(found.items()))
    return [chunk for chunk in every if _is_stored(contents, chunk)]


def readable_inventory(contents: Contents) -> Inventory:
    """Return the inventory with only those manifests whose chunks are all in the store and have the right
    size.
    """
    manifests = {
        key: one
        for key, one in contents.inventory.manifests.items()
        if all(_is_stored(contents, chunk) for chunk in one.chunks)
    }
    return replace(contents.inventory, manifests=manifests)


def faults(contents: Contents, record: Record, damaged: Mapping[str, str] | None = None) -> list[Fault]:
    """Return the damaged and missing objects of one generation. `damaged` has the error message of each
    chunk that was found damaged, by digest.
    """
    return [
        Fault(record.generation, shard, what, missing)
        for shard in sorted(record.shards, key=lambda name: (len(name), name))
        for what, missing in _shard_faults(contents, record.shards[shard], damaged or {})
    ]


def fault_lines(found: Iterable[Fault]) -> tuple[list[str], list[str]]:
    """Return two lists of lines: one about damaged objects, then one about missing objects. Each line names
    the shards that need the object.
    """
    needed: dict[tuple[str, bool], list[str]] = {}
    for one in found:
        needed.setdefault((one.what, one.missing), []).append(f"shard {one.shard} of {label(one.generation)}")
    lines: tuple[list[str], list[str]] = ([], [])
    for (what, missing), places in needed.items():
        more = f" and {len(places) - MAX_NAMED_SHARDS} more" if len(places) > MAX_NAMED_SHARDS else ""
        lines[missing].append(f"{what}; needed by {', '.join(places[:MAX_NAMED_SHARDS])}{more}")
    return lines


def _shard_faults(contents: Contents, head: str, damaged: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield each damaged or missing object of a shard as a message and a bool. The bool is True if the
    object is missing.
    """
    links = restore.chain(contents.inventory.manifests, head)
    if links is None:
        yield _chain_fault(contents, head)
        return
    for chunk in dict.fromkeys(chunk for link in links for chunk in link.chunks):
        size = contents.chunks.sizes.get(chunk.digest, chunk.length)
        if chunk.digest not in contents.chunks.written:
            yield f"chunk {chunk.digest} is missing", True
        elif not chunk.fits(size):
            yield f"chunk {chunk.digest} has {size} bytes instead of {chunk.length}", False
        elif chunk.digest in damaged:
            yield damaged[chunk.digest], False


def _chain_fault(contents: Contents, head: str) -> tuple[str, bool]:
    """Return a message about the first fault in the chain of manifests that ends with `head`. The bool is
    True if a manifest is missing from the store.
    """
    manifests = contents.inventory.manifests
    seen: set[str] = set()
    at: str | None = head
    while at is not None and at in manifests and at not in seen:
        seen.add(at)
        at = manifests[at].extends
    if at is None or at in seen:
        return f"the chain of manifests from {head} is broken", False
    there = at in contents.manifests.written
    return (f"manifest {at} cannot be read", False) if there else (f"manifest {at} is missing", True)


def _is_stored(contents: Contents, chunk: Chunk) -> bool:
    there = chunk.digest in contents.chunks.written
    return there and chunk.fits(contents.chunks.sizes.get(chunk.digest, chunk.length))


def _timestamp(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None
