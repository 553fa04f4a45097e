"""Finds the damaged, missing and orphaned objects of one job in a store. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy.cli.checkpoint.contents import Contents, fault_lines, faults
from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.retention import Garbage, Keep


@dataclass(frozen=True)
class Findings:
    """The damaged, missing and orphaned objects of one job, and their sizes in bytes."""

    generations: int
    size: int
    """Number of bytes of all chunks and manifests of the job."""
    damaged: tuple[str, ...]
    missing: tuple[str, ...]
    orphaned: Garbage
    """Manifests and chunks that no record needs. If any record cannot be read, this is empty, because that
    record may need some of them.
    """
    orphaned_bytes: int
    expired: Garbage
    """Orphaned objects that are older than `grace_seconds` (see `find_faults`). They are so old that no
    upload in progress needs them.
    """
    expired_bytes: int
    garbage: Garbage
    """Objects that the job's next garbage collection deletes."""
    garbage_bytes: int

    @property
    def faults(self) -> int:
        """Return the number of damaged or missing objects."""
        return len(self.damaged) + len(self.missing)


def find_faults(
    contents: Contents, keep: Keep, grace_seconds: float, damaged: Mapping[str, str] | None = None
) -> Findings:
    """Return the findings about a job.

    `keep` is the rule for which generations the job keeps in its store. `grace_seconds` is the minimum age
    of an orphaned object that may be deleted. `damaged` has the error message of each chunk that was found
    damaged, by digest.
    """
    inventory, now = contents.inventory, contents.chunks.now
    records = [inventory.records[one] for one in sorted(inventory.records)]
    bad, missing = fault_lines(fault for one in records for fault in faults(contents, one, damaged))
    orphaned = orphans(contents)
    expired = deletable(contents, orphaned, grace_seconds)
    candidates = retention.remote_garbage(inventory, contents.chunks.written, keep, now, grace_seconds)
    garbage = deletable(contents, candidates, grace_seconds)
    everything = Garbage(
        manifests=frozenset(contents.manifests.written), chunks=frozenset(contents.chunks.written)
    )
    return Findings(
        generations=len(records),
        size=size(contents, everything),
        damaged=(*(f"cannot be read: {one}" for one in contents.malformed), *bad),
        missing=tuple(missing),
        orphaned=orphaned,
        orphaned_bytes=size(contents, orphaned),
        expired=expired,
        expired_bytes=size(contents, expired),
        garbage=garbage,
        garbage_bytes=size(contents, garbage),
    )


def orphans(contents: Contents) -> Garbage:
    """Return the manifests and chunks that no record needs."""
    if any("/records/" in one for one in contents.malformed):
        return Garbage()
    alive, unknown, used = _needed(contents, Garbage())
    chunks = frozenset() if unknown else frozenset(contents.chunks.written) - used
    return Garbage(manifests=frozenset(contents.manifests.written) - alive, chunks=chunks)


def deletable(contents: Contents, garbage: Garbage, grace_seconds: float) -> Garbage:
    """Return the objects of `garbage` that `Store.delete` would delete. `Store.delete` keeps objects
    younger than `grace_seconds` and objects that a remaining object needs.
    """
    alive, unknown, used = _needed(contents, garbage)
    now, manifests = contents.manifests.now, contents.manifests.written
    gone = {one for one in garbage.manifests - alive if now - manifests.get(one, now) > grace_seconds}
    for key, one in contents.inventory.manifests.items():
        if key not in gone:
            used |= {chunk.digest for chunk in one.chunks}
    now, chunks = contents.chunks.now, contents.chunks.written
    old = {one for one in garbage.chunks - used if now - chunks.get(one, now) > grace_seconds}
    return Garbage(
        garbage.records, garbage.branches, frozenset(gone), frozenset() if unknown else frozenset(old)
    )


def size(contents: Contents, garbage: Garbage) -> int:
    """Return the number of bytes of the manifests and chunks in `garbage`."""
    sizes = contents.manifests.sizes, contents.chunks.sizes
    return sum(
        known.get(one, 0)
        for known, names in zip(sizes, (garbage.manifests, garbage.chunks), strict=True)
        for one in names
    )


def count(garbage: Garbage) -> int:
    """Return the number of manifests and chunks in `garbage`."""
    return len(garbage.manifests) + len(garbage.chunks)


def _needed(contents: Contents, garbage: Garbage) -> tuple[set[str], set[str], set[str]]:
    """Return what the records outside `garbage` need: the ids of manifests, the ids of those manifests that
    cannot be read, and the digests of chunks.
    """
    manifests = contents.inventory.manifests
    left = (one for key, one in contents.inventory.records.items() if key not in garbage.records)
    alive = retention.reachable({head for one in left for head in one.shards.values()}, manifests)
    known = alive & manifests.keys()
    used = {chunk.digest for key in known for chunk in manifests[key].chunks}
    return alive, alive - known, used
