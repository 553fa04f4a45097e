"""Which generation of checkpoints a job continues from, and which may go. Pure: records in, decision out.

A generation is (incarnation, step). Each COMMIT record names its parent: the generation its incarnation
restored from, or the one it committed before. The lineage starts at the newest record of the highest
incarnation and follows the parents. A record off this line belongs to an incarnation that was already
replaced when it was written (a dead branch): valid bytes of a run that did not happen.

An incarnation that ends before its first commit leaves no record, but it too has gone on from somewhere: it
says so in a branch, before its first step. Otherwise a late commit of the incarnation before it, from a node
that was cut off with all it needs for one, would look like the newest state of the run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

KEEP = 2
"""Committed generations kept: the newest, and one to fall back on when it cannot be read."""

_NAME = re.compile(r"gen-(\d+)-(\d+)")


@dataclass(frozen=True, order=True)
class Generation:
    """The state after `step` steps, saved by `incarnation`."""

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"gen-{self.incarnation}-{self.step}"


def parse_name(name: str) -> Generation | None:
    """The generation of a folder; None for other folders."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class Record:
    """A COMMIT record: every rank's part was durable when it was written."""

    generation: Generation
    parent: Generation | None
    world: int
    """Ranks that saved it."""
    torch: str = ""
    """Version of torch that saved it."""
    metadata: str = ""
    """SHA-256 of DCP's `.metadata`, in hex."""
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Size in bytes and SHA-256 of each data file."""

    def to_json(self) -> dict[str, Any]:
        """The form on disk."""
        return {
            "incarnation": self.generation.incarnation,
            "step": self.generation.step,
            "parent": _pair(self.parent),
            "worldSize": self.world,
            "torch": self.torch,
            "metadata": self.metadata,
            "files": {name: list(entry) for name, entry in self.files.items()},
        }


@dataclass(frozen=True)
class Branch:
    """Where an incarnation began.

    Its file is there before that is known, without a parent: nobody older may commit any more from then on.
    """

    incarnation: int
    parent: Generation | None
    """What it was restored from; None for a fresh start."""

    def to_json(self) -> dict[str, Any]:
        """The form on disk."""
        return {"incarnation": self.incarnation, "parent": _pair(self.parent)}


def branch_from_json(data: Mapping[str, Any]) -> Branch:
    """The branch in its form on disk; KeyError, TypeError or ValueError when it is none."""
    return Branch(int(data["incarnation"]), _generation(data["parent"]))


def record_from_json(data: Mapping[str, Any]) -> Record:
    """The record in its form on disk; KeyError, TypeError or ValueError when it is none."""
    return Record(
        generation=Generation(int(data["incarnation"]), int(data["step"])),
        parent=_generation(data["parent"]),
        world=int(data["worldSize"]),
        torch=str(data["torch"]),
        metadata=str(data["metadata"]),
        files={str(name): (int(size), str(digest)) for name, (size, digest) in data["files"].items()},
    )


def _pair(generation: Generation | None) -> list[int] | None:
    return None if generation is None else [generation.incarnation, generation.step]


def _generation(pair: Any) -> Generation | None:
    return None if pair is None else Generation(int(pair[0]), int(pair[1]))


def lineage(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Record]:
    """The generations to restore from, best first.

    It ends where a parent has no record: collected, or never committed. A parent that is not older than its
    child is a corrupt record and ends it too, so the walk always terminates.
    """
    by_generation = {record.generation: record for record in records}
    line: list[Record] = []
    at = _newest(by_generation, max(branches, key=lambda branch: branch.incarnation, default=None))
    while at is not None and at in by_generation:
        record = by_generation[at]
        line.append(record)
        at = record.parent if record.parent is not None and record.parent < at else None
    return line


def _newest(known: Collection[Generation], branch: Branch | None) -> Generation | None:
    """Where the lineage starts. `branch`: of the highest incarnation that has one."""
    newest = max(known, default=None)
    if branch is None or (newest is not None and newest.incarnation >= branch.incarnation):
        return newest
    if branch.parent is None:
        return None
    # Somebody may have deleted it, because it could not be read: what is older may still serve.
    return max((one for one in known if one <= branch.parent), default=None)


def doomed(
    present: Iterable[Generation],
    records: Iterable[Record],
    newest: Generation,
    spared: Collection[Generation] = (),
    branches: Iterable[Branch] = (),
) -> list[Generation]:
    """The generations that may be deleted once `newest` is committed.

    Kept: the newest `KEEP` of the lineage, and whatever is not older than `newest`: a save in flight, or the
    work of a later incarnation that has replaced this one. `spared` are kept too: generations that this run
    could not read, which may be the volume's trouble and not theirs.
    """
    kept = {record.generation for record in lineage(records, branches)[:KEEP]}
    if newest not in kept:
        return []
    return sorted(one for one in set(present) if one not in kept and one not in spared and one < newest)
