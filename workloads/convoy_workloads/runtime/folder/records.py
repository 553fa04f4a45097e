"""COMMIT records, and which generations may go. Pure: records in, decision out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.runtime.generation import Generation, Record

KEEP = 2
"""Committed generations kept: the newest, and one to fall back on when it cannot be read."""

_NAME = re.compile(r"gen-(\d+)-(\d+)")


def parse_name(name: str) -> Generation | None:
    """The generation of a folder; None for other folders."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class CommitRecord(Record):
    """What rank 0 writes once every rank's part is durable."""

    metadata: str
    """SHA-256 of DCP's `.metadata`, in hex."""
    files: Mapping[str, tuple[int, str]]
    """Size in bytes and SHA-256 of each data file."""

    def to_json(self) -> dict[str, Any]:
        """The form on disk."""
        return {
            "incarnation": self.generation.incarnation,
            "step": self.generation.step,
            "worldSize": self.world,
            "torch": self.torch,
            "metadata": self.metadata,
            "files": {name: list(entry) for name, entry in self.files.items()},
        }


def record_from_json(data: Mapping[str, Any]) -> CommitRecord:
    """The record in its form on disk; KeyError, TypeError or ValueError when it is none."""
    return CommitRecord(
        generation=Generation(int(data["incarnation"]), int(data["step"])),
        world=int(data["worldSize"]),
        torch=str(data["torch"]),
        metadata=str(data["metadata"]),
        files={str(name): (int(size), str(digest)) for name, (size, digest) in data["files"].items()},
    )


def superseded(
    present: Iterable[Generation],
    committed: Iterable[Generation],
    newest: Generation,
    unreadable: Collection[Generation] = (),
) -> list[Generation]:
    """The generations that may be deleted once `newest` is committed.

    Kept: the newest `KEEP` that are committed, and what is newer than `newest`. `spared` are kept too, and
    count for nothing: this run could not read them, which may be the disk's trouble and not theirs.
    """
    kept = sorted(set(committed).difference(unreadable), reverse=True)[:KEEP]
    if newest not in kept:
        return []
    return sorted(one for one in set(present) if one not in kept and one not in unreadable and one < newest)
