"""Which generation of checkpoints a job continues from, and which may go. Pure: records in, decision out.

A generation is (incarnation, step). Each COMMIT record names its parent: the generation its incarnation
restored from, or the one it committed before. The lineage starts at the newest record of the highest
incarnation and follows the parents. A record off this line belongs to an incarnation that was already
replaced when it was written (a dead branch): valid bytes of a run that did not happen.
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


def record_from_json(data: Mapping[str, Any]) -> Record:
    """The record in its form on disk; KeyError, TypeError or ValueError when it is none."""
    parent = data["parent"]
    return Record(
        generation=Generation(int(data["incarnation"]), int(data["step"])),
        parent=None if parent is None else Generation(int(parent[0]), int(parent[1])),
        world=int(data["worldSize"]),
        torch=str(data["torch"]),
        metadata=str(data["metadata"]),
        files={str(name): (int(size), str(digest)) for name, (size, digest) in data["files"].items()},
    )


def _pair(generation: Generation | None) -> list[int] | None:
    return None if generation is None else [generation.incarnation, generation.step]


def lineage(records: Iterable[Record]) -> list[Record]:
    """The generations to restore from, best first.

    It ends where a parent has no record: collected, or never committed. A parent that is not older than its
    child is a corrupt record and ends it too, so the walk always terminates.
    """
    by_generation = {record.generation: record for record in records}
    line: list[Record] = []
    at = max(by_generation, default=None)
    while at is not None and at in by_generation:
        record = by_generation[at]
        line.append(record)
        at = record.parent if record.parent is not None and record.parent < at else None
    return line


def doomed(
    present: Iterable[Generation],
    records: Iterable[Record],
    newest: Generation,
    spared: Collection[Generation] = (),
) -> list[Generation]:
    """The generations that may be deleted once `newest` is committed.

    Kept: the newest `KEEP` of the lineage, and whatever is not older than `newest`: a save in flight, or the
    work of a later incarnation that has replaced this one. `spared` are kept too: generations that this run
    could not read, which may be the volume's trouble and not theirs.
    """
    kept = {record.generation for record in lineage(records)[:KEEP]}
    if newest not in kept:
        return []
    return sorted(one for one in set(present) if one not in kept and one not in spared and one < newest)
