"""Hosts in racks: the racks of the ranks, and the network that connects them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from convoy_controllers.astrasim.network.fabrics.fabric import duplex
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph

_EVEN = re.compile(r"(\d{1,4}) racks?( alternating)?")
_COUNTS = re.compile(r"\d{1,4}(\+\d{1,4})*")
SPINE = "spine"


class InvalidPlacement(ValueError):
    """Raised for a text that describes no placement of the ranks."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The links of hosts and racks, in both directions."""

    host: float
    """GB/s of the link between a host and its rack, with GB = 2^30 bytes."""
    uplink: float
    """GB/s of the link between a rack and the spine."""
    host_latency: float = 0.0
    """ns."""
    uplink_latency: float = 0.0
    """ns."""


def racks_of(text: str, ranks: int) -> tuple[str, ...]:
    """Return the name of each rank's rack.

    `2 racks`: equal blocks of ranks. `2 racks alternating`: the ranks take turns. `6+2`: ranks in each rack,
    in rank order. Raises InvalidPlacement for other texts and numbers that do not fit.
    """
    if found := _EVEN.fullmatch(text):
        count = int(found[1])
        if not 1 <= count <= ranks:
            raise InvalidPlacement(f"must have 1 to {ranks} racks, one rank in each, has {count}")
        return tuple(_name(rank % count if found[2] else rank * count // ranks) for rank in range(ranks))
    if _COUNTS.fullmatch(text):
        counts = [int(one) for one in text.split("+")]
        if 0 in counts or sum(counts) != ranks:
            raise InvalidPlacement(f"must have {ranks} ranks in all and one in each rack")
        return tuple(_name(rack) for rack, count in enumerate(counts) for _ in range(count))
    raise InvalidPlacement("must be like `2 racks`, `2 racks alternating` or `6+2`")


def _name(number: int) -> str:
    return f"rack-{number}"


def network(racks: Sequence[str], rates: Rates, uplinks: dict[str, float] | None = None) -> LinkGraph:
    """Return the links between ranks, racks and the spine. Each rank has a host of its own.

    `uplinks`: GB/s of single racks' uplinks, if they differ.
    """
    ranks = len(racks)
    names = list(dict.fromkeys(racks))
    nodes = {name: ranks + number for number, name in enumerate(names)}
    links = []
    for rank, rack in enumerate(racks):
        links += duplex(rank, nodes[rack], rates.host, rates.host_latency)
    switches = names
    if len(names) > 1:
        spine = ranks + len(names)
        switches = [*names, SPINE]
        for name in names:
            rate = (uplinks or {}).get(name, rates.uplink)
            links += duplex(nodes[name], spine, rate, rates.uplink_latency)
    return LinkGraph(ranks, switches, links)
