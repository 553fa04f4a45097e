"""The load of a generation from its shards, through the planner of torch.distributed.checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from convoy_workloads.runtime.saved_entries import add_saved, drop_unsaved
from convoy_workloads.runtime.tiers.memory_copy import MemoryCopy
from convoy_workloads.runtime.tiers.planning import ShardLoadPlanner
from convoy_workloads.runtime.tiers.shard import Part


class SavedValues(Protocol):
    """Tensors and values that were saved together: a shard, or the values that a journal segment holds in
    full.
    """

    @property
    def parts(self) -> Sequence[Part]:
        """The saved boxes of tensors, with their positions."""
        ...

    @property
    def values(self) -> Mapping[str, str]:
        """The encoded values that are not tensors, by name."""
        ...

    def tensor(self, part: Part) -> torch.Tensor:
        """Return the tensor of the box that `part` describes."""
        ...


def load(state: dict[str, Any], shards: Iterable[SavedValues], *, partial: bool = False) -> None:
    """Read the shards into `state`, by name and position. Any number of ranks may have saved them.

    Entries of `state` that a checkpoint need not contain are dropped if they were not saved (see
    `drop_unsaved`). Saved entries of the optimizer that `state` lacks are added (see `add_saved`). With
    `partial`, `state` keeps all its entries, and those that were not saved stay unchanged. The function
    uses no collective, so a rank can call it alone.
    """
    reader = ShardReader(shards)
    if not partial:
        saved = reader.read_metadata().state_dict_metadata
        add_saved(state, saved)
        drop_unsaved(state, saved)
    state_dict_loader.load(
        state, storage_reader=reader, planner=ShardLoadPlanner(allow_partial_load=partial), no_dist=True
    )


class ShardReader(StorageReader):
    """Lets torch.distributed.checkpoint read the shards of one generation."""

    def __init__(self, shards: Iterable[SavedValues]) -> None:
        self._parts: dict[MetadataIndex, tuple[SavedValues, Part]] = {}
        self._values: dict[str, str] = {}
        for one in shards:
            self._values.update(one.values)
            for part in one.parts:
                self._parts[MetadataIndex(part.name, torch.Size(part.offsets))] = (one, part)

    def value(self, name: str) -> io.BytesIO:
        """Return a value that is not a tensor, encoded as `ShardLoadPlanner` expects it."""
        return io.BytesIO(self._values[name].encode())

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing, because no state is kept between two loads."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the description of the saved entries as DCP's Metadata."""
        found: dict[str, Any] = {name: BytesStorageMetadata() for name in self._values}
        for _, part in self._parts.values():
            if part.name not in found:
                properties = TensorProperties(dtype=getattr(torch, part.dtype))
                found[part.name] = TensorStorageMetadata(properties, torch.Size(part.shape), [])
            chunk = ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.sizes))
            found[part.name].chunks.append(chunk)
        return Metadata(found, storage_meta=StorageMeta())

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing, because all shards are in memory."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans unchanged."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy every item that `plan` requests from the shards into the state."""
        copy, copied = MemoryCopy(), []
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, self.value(item.storage_index.fqn))
                continue
            one, part = self._parts[item.storage_index]
            source = one.tensor(part)
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):  # noqa: B905
                source = source.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            copy.add(target, source)
            copied.append((item, target))
        copy.run()
        for item, target in copied:
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return True only if `checkpoint_id` is None. The reader finds the shards without an id."""
        return checkpoint_id is None
