"""The save and load of one generation in the format of torch.distributed.checkpoint (DCP).

A program can also read the generation with `dcp.load`.

A save has three parts. Only the first part needs all ranks at once, and it is quick:

1. `stage`: the ranks agree which rank writes which tensor. Replicated tensors are written once, spread over
   the ranks. Each rank copies its share to host memory. After that the training may continue, or the process
   group may be destroyed.
2. `write`: each rank writes and syncs its share, then its part file.
3. `seal`: once every part is durable, rank 0 alone writes `.metadata` and the COMMIT record.
"""

from __future__ import annotations

import base64
import json
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from convoy_workloads.runtime.folder.records import CommitRecord
from convoy_workloads.runtime.folder.storage import (
    COMMIT,
    METADATA,
    PART,
    POLL_SECONDS,
    digest,
    digests,
    has_failed,
    sync_folder,
    write_json,
)
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.saved_entries import add_saved, drop_unsaved
from convoy_workloads.runtime.tiers.planning import without_duplicates


@dataclass
class Staged:
    """This rank's share of a generation, copied to host memory and not yet written to the disk."""

    generation: Generation
    folder: Path
    rank: int
    world: int
    plan: SavePlan
    data: _CopiedPlanner
    writer: FileSystemWriter
    metadata: Any
    """DCP's index of the whole generation; None on all ranks except rank 0."""


class _CopiedPlanner(DefaultSavePlanner):
    """A planner that gives DCP's writer the copies in host memory instead of the live tensors."""

    def __init__(self, copies: dict[Any, Any]) -> None:
        super().__init__()
        self._copies = copies

    def resolve_data(self, write_item: WriteItem) -> Any:
        return self._copies[write_item.index]


def stage(state: dict[str, Any], root: Path, generation: Generation, group: Any = None) -> Staged:
    """Plan the generation with all ranks of `group`, and copy this rank's share to host memory.

    `group`: None if the rank is alone. This function does not access the disk, because the disk may hang.
    """
    rank = dist.get_rank(group) if group is not None else 0
    world = dist.get_world_size(group) if group is not None else 1
    folder = root / generation.name
    writer = FileSystemWriter(folder, sync_files=True)
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, storage_meta=writer.storage_meta(), is_coordinator=rank == 0)
    writer.set_up_storage_writer(rank == 0)
    # Do not call the writer's prepare_local_plan, because it only creates the folder.
    mine = planner.create_local_plan()
    plans: list[Any] = [None] * world
    metadata = None
    if group is None:
        plans = [mine]
    else:
        dist.gather_object(mine, plans if rank == 0 else None, dst=0, group=group)
    global_plan: list[Any] = [None] * world
    if rank == 0:
        merged, metadata = planner.create_global_plan(without_duplicates(plans))
        global_plan = list(writer.prepare_global_plan(merged))
    if group is not None:
        received: list[Any] = [None]
        dist.scatter_object_list(received, global_plan if rank == 0 else None, src=0, group=group)
        global_plan[rank] = received[0]
    plan = planner.finish_plan(global_plan[rank])
    copies = {item.index: _copy(planner.resolve_data(item)) for item in plan.items}
    return Staged(generation, folder, rank, world, plan, _CopiedPlanner(copies), writer, metadata)


def _copy(value: Any) -> Any:
    """Return a copy in host memory that training cannot change."""
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def write(staged: Staged) -> None:
    """Write this rank's share and part file, and sync them. Raises OSError if the disk fails."""
    staged.folder.mkdir(parents=True, exist_ok=True)
    results = staged.writer.write_data(staged.plan, staged.data)
    results.wait()
    written = results.value()
    names = sorted({result.storage_data.relative_path for result in written})
    part = {
        "files": digests(staged.folder / name for name in names),
        "results": base64.b64encode(pickle.dumps(written)).decode(),
    }
    write_json(staged.folder / PART.format(rank=staged.rank), part)
    sync_folder(staged.folder.parent)


def parts(staged: Staged) -> list[dict[str, Any]] | None:
    """Return the content of every rank's part file, in rank order; None if any of these files does not
    exist yet.
    """
    found = []
    for rank in range(staged.world):
        try:
            found.append(json.loads((staged.folder / PART.format(rank=rank)).read_bytes()))
        except FileNotFoundError:
            return None
    return found


def seal(staged: Staged, seconds: float) -> None:
    """Wait until the part files of all ranks exist, then write `.metadata` and the COMMIT record. Only rank
    0 calls this.

    Raises TimeoutError if a part file is missing after `seconds`, and RuntimeError as soon as a rank
    reports that its write failed.
    """
    deadline = time.monotonic() + seconds
    while (found := parts(staged)) is None:
        if has_failed(staged.folder):
            raise RuntimeError(f"{staged.folder}: another rank could not write its part")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{staged.folder}: a rank has not written its part within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    results = [pickle.loads(base64.b64decode(part["results"])) for part in found]  # noqa: S301 - our own ranks
    staged.writer.finish(staged.metadata, results)
    sync_folder(staged.folder)
    record = CommitRecord(
        generation=staged.generation,
        world=staged.world,
        torch=str(torch.__version__),
        metadata=digest(staged.folder / METADATA),
        files={name: (size, sha) for part in found for name, (size, sha) in part["files"].items()},
    )
    write_json(staged.folder / COMMIT, record.to_json())


def load(state: dict[str, Any], folder: Path, group: Any = None) -> None:
    """Read the generation in `folder` into `state` with all ranks of `group`.

    Entries of `state` that a checkpoint need not contain are dropped if they were not saved (see
    `drop_unsaved`). Saved entries of the optimizer that `state` lacks are added (see `add_saved`).
    """
    reader = FileSystemReader(folder)
    saved = reader.read_metadata().state_dict_metadata
    add_saved(state, saved)
    drop_unsaved(state, saved)
    state_dict_loader.load(state, storage_reader=reader, process_group=group, no_dist=group is None)
