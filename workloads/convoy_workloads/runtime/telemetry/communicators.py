"""The identity of communicators in reports: their kind and their ranks. A process's own numbering of its
groups is not used, because other members may number the groups differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_COMMUNICATORS = 8
"""Maximum number of communicators in one window. Those that come first by kind and ranks are reported."""
MAX_MEMBERS = 256
"""Maximum length, in characters, of the text of a communicator's ranks. A communicator with a longer text
is not reported.
"""
MAX_KIND = 32
"""Maximum length of a kind, in characters."""
MIN_BYTES = 64 * 1024
"""Minimum size, in bytes, of a reported collective. The time of smaller ones depends more on processors
than on the network.
"""
_MESH = "mesh_"


@dataclass(frozen=True)
class Communicator:
    """A group of ranks that run collectives together, as it is named in telemetry messages."""

    kind: str
    """The dimension of a device mesh, or the program's own name for the group.

    The kind is `world` for the group of all ranks, and `group` for a group without a name.
    """
    members: str
    """The ranks in the form of `format_ranks`."""


@dataclass(frozen=True)
class Transfers:
    """A summary of the collectives that one rank has run in one communicator during one or more steps. It
    covers only the collectives of the largest size.
    """

    bytes: int
    """Size of each of these collectives in bytes."""
    seconds: float
    """Duration of the fastest of these collectives in seconds, from the call to the end of the transfer.

    A duration includes the wait for ranks that call later. The fastest collective had the shortest wait, so
    its duration is closest to the time of the transfer alone.
    """
    count: int = 1

    def merge(self, other: Transfers) -> Transfers:
        """Return one summary for the collectives of both summaries. If their sizes differ, return only the
        summary with the larger size.
        """
        if self.bytes != other.bytes:
            return max(self, other, key=lambda one: one.bytes)
        return Transfers(self.bytes, min(self.seconds, other.seconds), self.count + other.count)


def kind_of(description: str) -> str:
    """Return the kind of a group, derived from torch's description of the group (`group_desc`)."""
    if description == "default_pg":
        return "world"
    found = description[len(_MESH) :] if description.startswith(_MESH) else description
    # torch names a split group after its parent and a counter. Such a name is not an identifier, so the kind
    # is `group`.
    return found[:MAX_KIND] if found.isidentifier() and found != "undefined" else "group"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ascending rank numbers as text. Runs of ranks are separated by commas: `0-3` for four ranks,
    `0-12:4` for every fourth rank, `7` for one rank.
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
    """Return the list of collectives for a telemetry message, one entry per communicator."""
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
