"""The description of a synthetic training job, and the places of its ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

MAX_RANKS = 4096
MAX_NODES = 5_000_000
"""Nodes of all ranks together."""


class Schedule(StrEnum):
    """Order of the microbatches in a pipeline."""

    GPIPE = "GPipe"
    """All forward passes, then all backward passes."""
    ONE_F_ONE_B = "1F1B"
    """Forward and backward passes in turns, after a warm-up."""


class InvalidWorkload(ValueError):
    """Raised for a workload that cannot be generated. The message names the field."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model of equal layers and its distribution. Sizes are those of one layer before it is split."""

    layers: int
    data: int = 1
    """Copies of the model."""
    tensor: int = 1
    """Ranks that share each layer."""
    pipeline: int = 1
    """Stages, each with an equal share of the layers."""
    microbatches: int = 1
    steps: int = 1
    forward_us: int = 100
    """Microseconds of the forward pass of a layer for one microbatch on one rank."""
    backward_us: int = 200
    optimizer_us: int = 50
    """Microseconds of the optimizer for a layer."""
    parameter_bytes: int = 4 * 2**20
    activation_bytes: int = 2**20
    """Bytes that a layer passes on for one microbatch."""
    operations: int = 0
    """Floating-point operations of the forward pass; 0 leaves them out."""
    schedule: Schedule = Schedule.ONE_F_ONE_B

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.data * self.tensor * self.pipeline

    @property
    def stage_layers(self) -> int:
        """Return the layers of a stage."""
        return self.layers // self.pipeline

    def check(self) -> None:
        """Raise InvalidWorkload if a field has a value that cannot be used."""
        free = {
            "forward_us",
            "backward_us",
            "optimizer_us",
            "parameter_bytes",
            "activation_bytes",
            "operations",
        }
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in free else 1
            if isinstance(value, int) and not least <= value < 2**50:
                raise InvalidWorkload(f"{field.name}: must be at least {least} and below 2^50, not {value}")
        if self.layers % self.pipeline:
            raise InvalidWorkload(
                f"layers: {self.layers} layers cannot be split into {self.pipeline} equal stages"
            )
        if self.ranks > MAX_RANKS:
            raise InvalidWorkload(
                f"data x tensor x pipeline: {self.ranks} ranks; at most {MAX_RANKS} are allowed"
            )
        # A layer has at most 8 nodes for each microbatch, and a stage 4 messages.
        nodes = (
            self.ranks
            * self.steps
            * (self.microbatches * (8 * self.stage_layers + 4) + 2 * self.stage_layers)
        )
        if nodes > MAX_NODES:
            raise InvalidWorkload(
                f"steps, layers, microbatches: about {nodes} nodes; at most {MAX_NODES} are allowed"
            )


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a rank: its copy of the model, its part of each layer, and its stage."""

    copy: int
    part: int
    stage: int

    def rank(self, workload: Workload) -> int:
        """Return the number of the rank: parts of a layer are neighbours, then copies, then stages."""
        return (self.stage * workload.data + self.copy) * workload.tensor + self.part


def place_of(rank: int, workload: Workload) -> Position:
    """Return the place of a rank."""
    rest, part = divmod(rank, workload.tensor)
    stage, copy = divmod(rest, workload.data)
    return Position(copy, part, stage)


def process_groups(workload: Workload) -> dict[str, list[int]]:
    """Return the ranks of each process group with more than one rank, by name."""
    groups: dict[str, list[int]] = {}
    for rank in range(workload.ranks):
        place = place_of(rank, workload)
        for name in (data_group(place, workload), tensor_group(place, workload)):
            if name is not None:
                groups.setdefault(name, []).append(rank)
    return groups


def data_group(place: Position, workload: Workload) -> str | None:
    """Return the name of the group that adds up gradients; None if there is one copy."""
    return f"data-{place.stage}-{place.part}" if workload.data > 1 else None


def tensor_group(place: Position, workload: Workload) -> str | None:
    """Return the name of the group that shares a layer; None without such a group."""
    return f"tensor-{place.stage}-{place.copy}" if workload.tensor > 1 else None


def passes(workload: Workload, stage: int) -> list[tuple[bool, int]]:
    """Return the passes of a stage in their order: True for backward, and the microbatch."""
    count = workload.microbatches
    ahead = count if workload.schedule is Schedule.GPIPE else min(workload.pipeline - 1 - stage, count)
    order = [(False, one) for one in range(ahead)]
    for one in range(count):
        if ahead + one < count:
            order.append((False, ahead + one))
        order.append((True, one))
    return order
