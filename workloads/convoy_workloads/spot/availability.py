"""A model of spot capacity with two levels: a zone has capacity or not, and a node is there or not.

A node is there while its zone has capacity and its own process is on. All four times are exponential. So a
zone takes all its nodes at one moment, as recorded traces show. Independent nodes would never vanish
together.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from convoy_workloads.spot.trace import SECONDS_PER_HOUR, Notices, SpotTrace, node_name, with_notices

HOURS = 24.0 * 7


@dataclass(frozen=True, slots=True)
class Availability:
    """Mean hours for which a zone and a node are on and off."""

    zone_up_hours: float
    zone_down_hours: float
    node_up_hours: float
    node_down_hours: float

    @property
    def share(self) -> float:
        """Return the share of the time for which a node is there."""
        zone = self.zone_up_hours / (self.zone_up_hours + self.zone_down_hours)
        return zone * self.node_up_hours / (self.node_up_hours + self.node_down_hours)

    @property
    def losses_per_node_hour(self) -> float:
        """Return the losses in an hour of a node that is there."""
        return 1 / self.zone_up_hours + 1 / self.node_up_hours

    def with_losses(self, per_node_hour: float) -> Availability:
        """Return the model with another rate of losses and the same share of the time."""
        factor = self.losses_per_node_hour / per_node_hour
        return Availability(
            self.zone_up_hours * factor,
            self.zone_down_hours * factor,
            self.node_up_hours * factor,
            self.node_down_hours * factor,
        )

    def trace(
        self,
        nodes: int,
        zones: int = 1,
        hours: float = HOURS,
        seed: int = 0,
        notices: Notices | None = None,
    ) -> SpotTrace:
        """Return a random trace. The nodes are spread evenly over the zones."""
        moves = _moves(heapq.merge(*(self._zone(zone, zones, nodes, hours, seed) for zone in range(zones))))
        events = tuple(with_notices(moves, notices or Notices(), seed))
        return SpotTrace(hours * SECONDS_PER_HOUR, nodes, events)

    def _zone(self, zone: int, zones: int, nodes: int, hours: float, seed: int) -> Iterator[_Move]:
        """Yield the moves of the nodes of one zone, in the order of time."""
        opened = list(_on(_stream(seed, f"zone/{zone}"), self.zone_up_hours, self.zone_down_hours, hours))
        of_nodes = (
            _overlaps(
                opened,
                _on(_stream(seed, f"node/{number}"), self.node_up_hours, self.node_down_hours, hours),
                number,
                hours,
            )
            for number in range(zone, nodes, zones)
        )
        yield from sorted(move for found in of_nodes for move in found)


PRESETS = {
    "v100-calm": Availability(20.0, 1.5, 20.0, 0.8),
    "v100-stormy": Availability(1.2, 3.0, 1.8, 1.0),
    "v100-4-nodes": Availability(7.0, 1.5, 9.0, 0.7),
    "v100-16-nodes": Availability(3.3, 2.9, 6.4, 0.6),
    "v100-8-gpu": Availability(1.6, 1.0, 2.7, 0.85),
}
"""Parameters by name. They lie within the ranges of the traces of the paper "Can't Be Late" (NSDI 2024): nine
AWS zones in 45 days, with 1, 4 and 16 nodes of one V100 GPU, and nodes of eight GPUs. `calm` and `stormy` are
the zones with the lowest and the highest rate of losses.
"""

_Move = tuple[float, int, str]
"""Hours, 0 for a loss or 1 for an arrival, and the node. Losses of a moment come first."""


def _on(stream: random.Random, up: float, down: float, hours: float) -> Iterator[tuple[float, float]]:
    """Yield the intervals in which a process is on. Its first state is random, as if it had run for long."""
    at, on = 0.0, stream.random() < up / (up + down)
    while at < hours:
        end = at + stream.expovariate(1 / (up if on else down))
        if on:
            yield at, end
        at, on = end, not on


def _overlaps(
    zone: list[tuple[float, float]], node: Iterator[tuple[float, float]], number: int, hours: float
) -> Iterator[_Move]:
    """Yield the moves of a node that is there while both processes are on."""
    name, first = node_name(number), 0
    for start, end in node:
        while first < len(zone) and zone[first][1] <= start:
            first += 1
        index = first
        while index < len(zone) and zone[index][0] < end:
            since, until = max(start, zone[index][0]), min(end, zone[index][1])
            if since < hours:
                yield since, 1, name
                if until < hours:
                    yield until, 0, name
            index += 1


def _moves(moves: Iterator[_Move]) -> Iterator[tuple[float, list[str], list[str]]]:
    """Yield the moves of each moment together."""
    for hour, found in groupby(moves, key=lambda move: move[0]):
        appeared: list[str] = []
        vanished: list[str] = []
        for _, arrival, name in found:
            (appeared if arrival else vanished).append(name)
        yield hour * SECONDS_PER_HOUR, appeared, vanished


def _stream(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/spot/{purpose}")  # noqa: S311 - must be repeatable
