"""COMMIT records, and the rule for deleting generations. Pure functions without I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.runtime.generation import Generation, Record

KEEP = 2
"""Number of committed generations that are kept: the newest, and an older one in case the newest cannot be
read.
"""

_NAME = re.compile(r"gen-(\d+)-(\d+)")


def parse_name(name: str) -> Generation | None:
    """Return the generation whose folder has this name; None if no generation has such a name."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class CommitRecord(Record):
    """The record that rank 0 writes once every rank's part is durable."""

    metadata: str
    """SHA-256 of DCP's `.metadata`, in hex."""
    files: Mapping[str, tuple[int, str]]
    """Size in bytes and SHA-256 of each data file, by name."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as the object that is written to disk."""
        return {
            "incarnation": self.generation.incarnation,
            "step": self.generation.step,
            "worldSize": self.world,
            "torch": self.torch,
            "metadata": self.metadata,
            "files": {name: list(entry) for name, entry in self.files.items()},
        }


def record_from_json(data: Mapping[str, Any]) -> CommitRecord:
    """Return the record that `to_json` encoded. Raises KeyError, TypeError or ValueError if `data` is
    malformed.
    """
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
    """Return the generations that may be deleted once `newest` is committed.

    The newest `KEEP` committed generations are kept, and every generation that is newer than `newest`. The
    `unreadable` generations are kept too, because a temporary disk error may be the only reason why this
    run could not read them. They do not count as committed.
    """
    kept = sorted(set(committed).difference(unreadable), reverse=True)[:KEEP]
    if newest not in kept:
        return []
    return sorted(one for one in set(present) if one not in kept and one not in unreadable and one < newest)
