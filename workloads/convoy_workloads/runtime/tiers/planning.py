"""The plan of a save: which rank writes which values. The ranks agree on it once, and again when the
structure of the state changes.

torch.distributed.checkpoint (DCP) makes the plan: replicated tensors are written once, spread over the
ranks. The plan holds only positions. The values are read from the state at every save.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from convoy_workloads.runtime.state import SMALL_BYTES
from convoy_workloads.runtime.tiers import shard, values
from convoy_workloads.runtime.tiers.rank_collectives import run_on_all
from convoy_workloads.runtime.tiers.shard import Box, Layout


@dataclass(frozen=True)
class RankPlan:
    """This rank's part of the plan. It is used for every save until the structure of the state changes."""

    structure: Hashable
    """The names, shapes and types of this rank's state when the plan was made (`StateSnapshot.structure`)."""
    items: tuple[WriteItem, ...]
    """The tensors that this rank writes, in the order of the layout."""
    named: tuple[WriteItem, ...]
    """The values that this rank writes and that are not tensors."""
    layout: Layout
    plan: str
    """Digest of the plans of all ranks. Shards of different plans do not belong to the same generation."""


def without_duplicates(plans: list[SavePlan]) -> list[SavePlan]:
    """Keep each small tensor, and each value that is not a tensor, only in the plan of the lowest rank that
    has it.

    DCP would instead spread such values over the ranks. But their values may differ between ranks, and
    DistributedDataParallel too gives the lowest rank's values to all ranks.
    """
    seen: set[tuple[str, Any]] = set()
    found = []
    for plan in plans:
        items = [item for item in plan.items if not (_is_small(item) and _context(item) in seen)]
        seen |= {_context(item) for item in items}
        found.append(replace(plan, items=items))
    return found


def _is_small(item: WriteItem) -> bool:
    data = item.tensor_data
    return data is None or data.chunk.sizes.numel() * data.properties.dtype.itemsize <= SMALL_BYTES


def _context(item: WriteItem) -> tuple[str, Any]:
    return item.index.fqn, item.index.offset


class StateSnapshot:
    """The state of the program at one save. The values are read from it while they are copied to a buffer."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.planner = DefaultSavePlanner()
        self.planner.set_up_planner(state, is_coordinator=True)
        self._texts: dict[str, str] = {}
        """Encoded values that are not tensors, by name. Each value is encoded at its first use."""

    @cached_property
    def local(self) -> SavePlan:
        """DCP's plan of this rank's own values, before the plans of all ranks are merged.

        Raises UnsavableError for a tensor whose bytes in memory are not its values.
        """
        for name, value in self.planner.state_dict.items():
            if isinstance(value, torch.Tensor) and (kind := _unsavable(value)):
                raise values.UnsavableError(f"{name}: a {kind} tensor cannot be saved")
        return self.planner.create_local_plan()

    @cached_property
    def structure(self) -> Hashable:
        """The names, shapes and types of this rank's values. Two states of one rank with equal structures
        have equal plans.
        """
        return _structure_of_values(self.planner.state_dict) or _structure(self.local)

    def fits(self, rank_plan: RankPlan | None, facts: Mapping[str, Any]) -> bool:
        """Return True if the state can be saved with the existing plan `rank_plan`: its structure is
        unchanged, and its values fit into the shard's layout.
        """
        if rank_plan is None or rank_plan.structure != self.structure:
            return False
        return shard.fits(rank_plan.layout, self.texts(rank_plan), facts)

    def tensors(self, rank_plan: RankPlan) -> list[torch.Tensor]:
        """Return the tensors that `rank_plan` lets this rank write, in the order of the layout."""
        return [self.planner.lookup_object(item.index) for item in rank_plan.items]

    def texts(self, rank_plan: RankPlan) -> dict[str, str]:
        """Return the values that are not tensors and that `rank_plan` lets this rank write. They are
        encoded as text, by name.

        Raises UnsavableError if a value cannot be encoded exactly.
        """
        return self.named(rank_plan.named)

    def named(self, items: Iterable[WriteItem]) -> dict[str, str]:
        """Return the values of `items`, which are no tensors, encoded as text, by name. Raises
        UnsavableError if a value cannot be encoded exactly.
        """
        return {item.index.fqn: self._text(item) for item in items}

    def _text(self, item: WriteItem) -> str:
        name = item.index.fqn
        if name not in self._texts:
            try:
                self._texts[name] = values.dumps(self.planner.lookup_object(item.index))
            except values.UnsavableError as error:
                raise values.UnsavableError(f"{name}: {error}") from error
        return self._texts[name]


def plan_save(snapshot: StateSnapshot, group: Any = None) -> RankPlan:
    """Agree with all ranks of `group` which rank writes which values. Return this rank's part of the plan.
    `group`: None if the rank is alone.

    Raises UnsavableError if a value of this rank cannot be saved exactly. Raises torch's error on rank 0
    if the states of the ranks do not match. In both cases all other ranks raise OtherRankFailed.
    """
    rank = dist.get_rank(group) if group is not None else 0
    world = dist.get_world_size(group) if group is not None else 1
    plans: list[Any] = [run_on_all(lambda: snapshot.local, group)]
    if group is not None:
        plans = [None] * world
        dist.gather_object(snapshot.local, plans if rank == 0 else None, dst=0, group=group)
    rank_plan: list[Any] = run_on_all(
        lambda: _global_plan(snapshot, plans) if rank == 0 else [None] * world, group
    )
    if group is not None:
        box: list[Any] = [None]
        dist.scatter_object_list(box, rank_plan if rank == 0 else None, src=0, group=group)
        rank_plan[rank] = box[0]
    plan, whole = rank_plan[rank]
    items = tuple(item for item in plan.items if item.type is not WriteItemType.BYTE_IO)
    named = tuple(item for item in plan.items if item.type is WriteItemType.BYTE_IO)
    layout = run_on_all(lambda: lay_out_items(items, snapshot.named(named)), group)
    return RankPlan(snapshot.structure, items, named, layout, whole)


def _global_plan(snapshot: StateSnapshot, plans: list[Any]) -> list[Any]:
    """Merge the plans of all ranks. Return, for each rank, its part of the merged plan and the digest of
    the whole merged plan. Only rank 0 calls this.
    """
    merged, _ = snapshot.planner.create_global_plan(without_duplicates(plans))
    whole = hashlib.sha256("\n".join(_structure(plan) for plan in merged).encode()).hexdigest()[:16]
    return [(plan, whole) for plan in merged]


def lay_out_items(items: Iterable[WriteItem], texts: Mapping[str, str]) -> Layout:
    """Return the layout of a shard: the positions of the tensors, after an index with space for the other
    values.
    """
    wanted = [_wanted(item) for item in items]
    draft = shard.lay_out(wanted, 0)
    return shard.lay_out(wanted, len(shard.index(draft, texts, {})))


class ShardLoadPlanner(DefaultLoadPlanner):
    """A load planner that decodes the values of shards."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        """Decode a value that is not a tensor (values.py), and store it in the state."""
        found = values.loads(value.read().decode())
        *way, last = self.mappings[read_item.dest_index.fqn]
        target: Any = self.original_state_dict
        for key in way:
            target = target[key]
        target[last] = found


def _wanted(item: WriteItem) -> tuple[str, Box, tuple[int, ...], torch.dtype]:
    data = item.tensor_data
    assert data is not None  # noqa: S101 - it is a tensor's
    box = (tuple(data.chunk.offsets), tuple(data.chunk.sizes))
    return item.index.fqn, box, tuple(data.size), data.properties.dtype


def _unsavable(tensor: torch.Tensor) -> str:
    """Return the kind of a tensor that cannot be saved; empty if it can."""
    if tensor.device.type == "meta":
        return "meta"
    if tensor.is_quantized:
        return "quantized"
    return "" if tensor.layout is torch.strided else str(tensor.layout).removeprefix("torch.")


def _structure_of_values(state: Mapping[str, Any]) -> Hashable:
    """Return the names, shapes and types of a flat state. Return None if a tensor may be a part of a larger
    tensor, because its offsets are then needed too.
    """
    rows: list[tuple[Any, ...]] = []
    for name, value in state.items():
        # `__create_write_items__` is DCP's interface for values that plan themselves.
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            rows.append((name, value.shape, value.dtype))
        elif isinstance(value, torch.Tensor) or hasattr(value, "__create_write_items__"):
            return None
        else:
            rows.append((name,))
    return tuple(rows)


def _structure(plan: SavePlan) -> str:
    rows = []
    for item in plan.items:
        data = item.tensor_data
        rows.append(
            f"{item.index.fqn}|{item.type.name}"
            if data is None
            else f"{item.index.fqn}|{tuple(data.chunk.offsets)}|{tuple(data.chunk.sizes)}"
            f"|{tuple(data.size)}|{data.properties.dtype}"
        )
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]


def facts(step: int, world: int) -> Mapping[str, Any]:
    """Return the metadata that every shard of a generation stores: the step, the torch version and the
    number of ranks.
    """
    return {"step": step, "torch": str(torch.__version__), "world": world}
