"""Numbers the ranks of a gang along the topology, so that ring neighbours run on near nodes.

A collective's ring goes through the ranks in their order (NCCL builds its rings within and between nodes from
the rank order). The order therefore decides how often a ring leaves a node, a rack or a zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convoy_controllers.placement.topology import Topology, along
from convoy_crds.layout import Slot

HORIZON_SECONDS = 3600.0
"""Seconds in which a changed order must regain the time that it costs."""
HOP_SHARE = 0.05
"""Assumed share of a step that all hops of a ring cost together, if communication is hidden as usual. A
conservative figure: with a larger share, a change would pay sooner.
"""
PEER_BYTES_PER_SECOND = 100e6
"""Assumed bytes per second from another node's memory: most of a 1 Gbit/s link."""


@dataclass(frozen=True, slots=True)
class Move:
    """The costs of another order."""

    hops_before: int
    hops_after: int
    moved: int
    """Number of slots whose ranks change."""
    bytes_per_slot: int = 0
    """Bytes of saved state that a slot with other ranks must fetch from another node."""
    remaining_seconds: float = HORIZON_SECONDS


def order(layout: Sequence[Slot], nodes: Mapping[str, str], topology: Topology) -> dict[str, list[int]]:
    """Return the replicas of each role in the order of their ranks along the topology, by name of the role.

    `nodes`: node of each pod, by name of the pod. Ranks of one role stay together, in the order of the roles.
    """
    found: dict[str, list[int]] = {}
    for role in dict.fromkeys(slot.role for slot in layout):
        slots = sorted((slot for slot in layout if slot.role == role), key=lambda slot: slot.replica)
        places = [nodes.get(slot.pod, "") for slot in slots]
        found[role] = [slots[index].replica for index in along(places, topology)]
    return found


def hops(layout: Sequence[Slot], nodes: Mapping[str, str], topology: Topology) -> int:
    """Return the hops of the ring through the slots in their order."""
    return topology.ring_hops([nodes.get(slot.pod, "") for slot in layout])


def pays(move: Move) -> bool:
    """Return True if a new order regains within the horizon the time that its moved ranks need to fetch
    their state.

    Each slot fetches over its own link, so the slots fetch at the same time. With nothing to fetch, every
    saved hop pays.
    """
    saved = move.hops_before - move.hops_after
    if saved <= 0 or not move.moved:
        return False
    cost = move.bytes_per_slot / PEER_BYTES_PER_SECOND
    gain = HOP_SHARE * saved / move.hops_before * min(move.remaining_seconds, HORIZON_SECONDS)
    return gain > cost
