"""The position of a rank in the job's parallel layout: its pipeline stage and its model replica.

Only ranks of one stage do the same work, so only they are compared with each other. The program reports the
position, or it follows from the names of the process groups: those of a torch DeviceMesh (`pp`, `dp`) and
those of Megatron.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import kind_of

MAX_POSITION = 2**31 - 1
"""Maximum number of a stage or replica."""
PIPELINE = frozenset(("pp", "pipe", "pipeline", "pipeline_model_parallel_group"))
"""Names, in lower case, of groups with one rank of each stage, in the order of the stages."""
DATA = frozenset(
    ("dp", "ddp", "fsdp", "data", "dp_replicate", "dp_shard", "replicate", "shard", "data_parallel_group")
)
"""Names, in lower case, of groups with one rank of each replica."""


@dataclass(frozen=True)
class Position:
    """The position of one rank."""

    stage: int
    """Number of the pipeline stage, from 0."""
    replica: int
    """Number of the model replica, from 0. All ranks of a replica work on the same samples."""

    def __post_init__(self) -> None:
        for name in ("stage", "replica"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}: {value!r} is not a whole number")
            if not 0 <= value <= MAX_POSITION:
                raise ValueError(f"{name}: {value} is not from 0 to {MAX_POSITION}")

    def message(self) -> dict[str, int]:
        """Return the fields for a telemetry message."""
        return {"stage": self.stage, "replica": self.replica}


def from_groups(groups: Iterable[tuple[str, Sequence[int]]], rank: int) -> Position | None:
    """Return the position of `rank` according to its process groups. Return None without a pipeline group.

    `groups`: torch's description and the ranks of each group of which `rank` is a member.
    """
    stage, replica = None, 0
    seen: set[str] = set()
    for description, members in sorted(groups):
        kind = kind_of(description).lower()
        if kind in seen or len(members) < 2:
            continue
        seen.add(kind)
        if kind in PIPELINE:
            stage = members.index(rank)
        elif kind in DATA:
            replica = replica * len(members) + members.index(rank)
    return None if stage is None or replica > MAX_POSITION else Position(stage, replica)


def from_torch() -> Position | None:
    """Return this rank's position according to torch's process groups, if they tell it."""
    import torch.distributed as dist  # noqa: PLC0415

    if not dist.is_initialized():
        return None
    rank, world = int(os.environ.get("RANK", "-1")), os.environ.get("WORLD_SIZE", "")
    if dist.get_rank() != rank or str(dist.get_world_size()) != world:
        return None  # The program numbers its ranks in another way than the job.
    known: dict[Any, Any] = dist.distributed_c10d._world.pg_group_ranks
    groups = [group for group in list(known) if isinstance(group, dist.ProcessGroup)]
    members = [(getattr(one, "group_desc", ""), dist.get_process_group_ranks(one)) for one in groups]
    return from_groups([entry for entry in members if rank in entry[1]], rank)
