"""Communicators as they are reported: by kind and ranks. A process's own numbering of its groups is not
used, because other members may number them differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_COMMUNICATORS = 8
"""Most communicators reported per window: the first by kind and ranks."""
MAX_MEMBERS = 256
"""Longest text, in characters, of a communicator's ranks. A communicator with a longer one is not reported.
"""
MAX_KIND = 32
"""Longest kind, in characters."""
MIN_BYTES = 64 * 1024
"""Smallest collective that is reported. The time of a smaller one depends more on processors than on the
network.
"""
_MESH = "mesh_"


@dataclass(frozen=True)
class Communicator:
    """Ranks that run collectives together."""

    kind: str
    """The dimension of a device mesh, or the program's own name; `world` for all ranks, `group` without a
    name.
    """
    members: str
    """The ranks in the form of `format_ranks`."""


@dataclass(frozen=True)
class Transfers:
    """The largest collectives of one rank in one communicator."""

    bytes: int
    """Bytes of each collective."""
    seconds: float
    """Duration of the fastest one, from the call to the end of the transfer. The last rank to arrive waits
    for nobody.
    """
    count: int = 1

    def merge(self, other: Transfers) -> Transfers:
        """Return the combination of both. Smaller collectives are dropped."""
        if self.bytes != other.bytes:
            return max(self, other, key=lambda one: one.bytes)
        return Transfers(self.bytes, min(self.seconds, other.seconds), self.count + other.count)


def kind_of(description: str) -> str:
    """Return the kind of a group from torch's description of it (`group_desc`)."""
    if description == "default_pg":
        return "world"
    found = description[len(_MESH) :] if description.startswith(_MESH) else description
    # torch names a split group by a counter of its parent.
    return found[:MAX_KIND] if found.isidentifier() and found != "undefined" else "group"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ascending ranks as text, separated by commas: `0-3` for four, `0-12:4` for every fourth, `7`
    for one.
    """
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
    """Return the collectives in the form of the telemetry message."""
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
