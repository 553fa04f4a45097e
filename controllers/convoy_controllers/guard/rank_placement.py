"""Converts an incarnation's slots, pods and nodes to the layout of ranks that the detector needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from convoy_controllers.guard.telemetry import Layout, Position
from convoy_crds.layout import Slot

T = TypeVar("T")

HARDWARE_LABELS = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
"""Node labels that define a class of hardware. The first label that a node carries counts."""
RACK_LABEL = "topology.kubernetes.io/rack"


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """The ranks of an incarnation, and the nodes on which they run."""

    layout: Layout
    nodes: tuple[str, ...]
    """Node names, indexed by the layout's node numbers."""
    ranks: Mapping[str, range]
    """Ranks of each pod, by pod name."""

    def by_node(self, ranks: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """Return these ranks grouped by node name."""
        return grouped(ranks, lambda rank: self.nodes[int(self.layout.node[rank])])

    def without_peers(self) -> RankPlacement:
        """Return the placement with each rank in a stage of its own: the stages of a pipeline are unknown."""
        return replace(self, layout=replace(self.layout, stage=np.arange(self.layout.size)))

    def with_positions(self, positions: Mapping[int, Position]) -> RankPlacement:
        """Return the placement with the stages and replicas that the ranks report, by rank. Ranks of two
        roles never share a stage. The placement stays the same if a rank reports no position.
        """
        ranks = range(self.layout.size)
        if any(rank not in positions for rank in ranks):
            return self
        reported = [positions[rank].stage for rank in ranks]
        _, stage = np.unique(np.stack([self.layout.stage, reported]), axis=1, return_inverse=True)
        replica = _numbered(sorted({positions[rank].replica for rank in ranks}))
        layout = replace(
            self.layout,
            stage=stage.reshape(-1).astype(np.int64),
            replica=np.asarray([replica[positions[rank].replica] for rank in ranks], dtype=np.int64),
        )
        return replace(self, layout=layout)


def grouped(ranks: Iterable[int], where: Callable[[int], str]) -> dict[str, tuple[int, ...]]:
    """Return the ranks grouped by the name that `where` returns, sorted by that name."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        found.setdefault(where(rank), []).append(rank)
    return {name: tuple(found[name]) for name in sorted(found)}


def place_ranks(
    slots: Sequence[Slot], nodes: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]
) -> RankPlacement:
    """Return the placement of these slots' ranks. Each role does different work, so it counts as a pipeline
    stage, and each rank as a replica. Ranks may report other positions (`with_positions`).

    `nodes`: node name by pod; `labels`: labels by node. Raises KeyError if a pod's node is unknown.
    """
    of_slots = [nodes[slot.pod] for slot in slots]
    names, roles = _numbered(of_slots), _numbered([slot.role for slot in slots])
    racks = _numbered([labels.get(node, {}).get(RACK_LABEL, "") for node in of_slots])
    kinds = _numbered([_hardware(labels.get(node, {})) for node in of_slots])
    columns: list[list[int]] = [[], [], [], [], []]
    rank = 0
    for slot, node in zip(slots, of_slots, strict=True):
        where = labels.get(node, {})
        for _ in range(slot.processes):
            row = (
                roles[slot.role],
                rank,
                names[node],
                racks[where.get(RACK_LABEL, "")],
                kinds[_hardware(where)],
            )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
            rank += 1
    ranks = {slot.pod: range(slot.rank_offset, slot.rank_offset + slot.processes) for slot in slots}
    return RankPlacement(Layout.of(*columns), tuple(names), ranks)


def _hardware(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in HARDWARE_LABELS if label in labels), "")


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number from 0 for each distinct value, in order of appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}
