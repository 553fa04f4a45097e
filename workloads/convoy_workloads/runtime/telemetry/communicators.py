"""Communicators, as they are told: by what is parallel in them and by their ranks, never by a process's own
numbering of its groups, which another member need not share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_COMMUNICATORS = 8
"""Told of a window; with more, those that move most."""
MAX_MEMBERS = 256
"""Characters that a communicator's ranks may take; one with more is not told."""
MAX_KIND = 32
"""Characters of a kind."""
OWN = "convoy"
"""The kind of the groups that the runtime itself agrees in: these are not told."""
_MESH = "mesh_"


@dataclass(frozen=True)
class Communicator:
    """Ranks that do collectives together."""

    kind: str
    """`dp` for a wrapped model's gradients; else a device mesh's dimension, or how the program calls it."""
    members: str
    """See `ranks`."""


@dataclass
class Moved:
    """What one rank did in one communicator."""

    bytes: int = 0
    count: int = 0
    seconds: float = 0.0
    """For which it was held up."""

    def add(self, other: Moved) -> None:
        """Takes more in."""
        self.bytes += other.bytes
        self.count += other.count
        self.seconds += other.seconds


def kind(description: str) -> str:
    """What is parallel in a group, from what torch has it described as (`group_desc`)."""
    if description == "default_pg":
        return "world"
    found = description[len(_MESH) :] if description.startswith(_MESH) else description
    return found[:MAX_KIND] if found and found != "undefined" else "group"


def ranks(members: Sequence[int]) -> str:
    """Ranks in rising order, in brief: `0-3` for four, `0-12:4` for every fourth, `7` for one, by commas."""
    found, at = [], 0
    while at < len(members):
        end = at + 1
        stride = members[end] - members[at] if end < len(members) else 0
        while end < len(members) and members[end] - members[end - 1] == stride:
            end += 1
        steps = f":{stride}" if stride > 1 else ""
        found.append(f"{members[at]}-{members[end - 1]}{steps}" if end - at > 1 else str(members[at]))
        at = end
    return ",".join(found)


def messages(moved: Mapping[Communicator, Moved]) -> list[dict[str, Any]]:
    """As the agent is told. All members leave out the same ones, since they moved as much."""
    told = [one for one in moved if one.kind != OWN and len(one.members) <= MAX_MEMBERS]
    told.sort(key=lambda one: (-moved[one].bytes, one.kind, one.members))
    return [
        {
            "kind": one.kind,
            "members": one.members,
            "bytes": moved[one].bytes,
            "count": moved[one].count,
            "seconds": round(moved[one].seconds, 6),
        }
        for one in told[:MAX_COMMUNICATORS]
    ]
