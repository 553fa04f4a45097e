"""Communicators, as they are told: by what is parallel in them and by their ranks, never by a process's own
numbering of its groups, which another member need not share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_COMMUNICATORS = 8
"""Told of a window; with more, the first by kind and ranks."""
MAX_MEMBERS = 256
"""Characters that a communicator's ranks may take; one with more is not told."""
MAX_KIND = 32
"""Characters of a kind."""
MIN_BYTES = 64 * 1024
"""Of a collective that is told: a smaller one tells of processors more than of the network."""
_MESH = "mesh_"


@dataclass(frozen=True)
class Communicator:
    """Ranks that do collectives together."""

    kind: str
    """A device mesh's dimension, or how the program calls it; `world` for all, `group` without a name."""
    members: str
    """See `brief`."""


@dataclass(frozen=True)
class Transfers:
    """The largest collectives that one rank did in one communicator."""

    bytes: int
    """Of each."""
    seconds: float
    """Of the quickest, from the call to the end of the transfer: who comes last waits for nobody."""
    count: int = 1

    def merge(self, other: Transfers) -> Transfers:
        """Both; the smaller ones are forgotten."""
        if self.bytes != other.bytes:
            return max(self, other, key=lambda one: one.bytes)
        return Transfers(self.bytes, min(self.seconds, other.seconds), self.count + other.count)


def kind_of(description: str) -> str:
    """The kind of a group, from what torch has it described as (`group_desc`)."""
    if description == "default_pg":
        return "world"
    found = description[len(_MESH) :] if description.startswith(_MESH) else description
    # Groups that were split off are called by their parent's own count.
    return found[:MAX_KIND] if found.isidentifier() and found != "undefined" else "group"


def format_ranks(ranks: Sequence[int]) -> str:
    """Ranks in rising order: `0-3` for four, `0-12:4` for every fourth, `7` for one, by commas."""
    found, at = [], 0
    while at < len(ranks):
        end = at + 1
        stride = ranks[end] - ranks[at] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == stride:
            end += 1
        steps = f":{stride}" if stride > 1 else ""
        found.append(f"{ranks[at]}-{ranks[end - 1]}{steps}" if end - at > 1 else str(ranks[at]))
        at = end
    return ",".join(found)


def messages(moved: Mapping[Communicator, Transfers]) -> list[dict[str, Any]]:
    """As the agent is told."""
    told = [one for one in moved if len(one.members) <= MAX_MEMBERS]
    told.sort(key=lambda one: (one.kind, one.members))
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
