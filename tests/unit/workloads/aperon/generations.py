"""Generations with an index, as the node's agent delivers them to a replica."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Record
from convoy_workloads.engines.aperon.generation import EXTRA, IndexState
from convoy_workloads.engines.no_model import NoModel
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.tiers import planning, shard

STEP = 7


def tensors_of(index: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a generation with the index in a folder, by their names in the checkpoint."""
    state = IndexState()
    state.show(index)
    saved = TrainingState(0, NoModel(), None, {EXTRA: state}).collect()
    found = saved["extra"][EXTRA]
    prefix = f"extra.{EXTRA}"
    files = {f"{prefix}.files.{name}": one for name, one in found["files"].items()}
    return {f"{prefix}.contents": found["contents"], **files, "model.none": saved["model"]["none"]}


def deliver(tensors: Mapping[str, torch.Tensor], folder: Path, step: int = STEP) -> Path:
    """Write a generation with these tensors to a folder. Return the folder."""
    snapshot = planning.StateSnapshot(dict(tensors))
    plan = planning.plan_save(snapshot)
    data = bytearray(plan.layout.size)
    facts = planning.facts(step, 1)
    shard.write(memoryview(data), plan.layout, snapshot.tensors(plan), snapshot.texts(plan), facts)
    path = folder / "shards" / "0" / f"gen-1-{step}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    (folder / "record.json").write_bytes(Record(Generation(1, step), None, {"0": "id"}).text)
    return folder


def saved_by_a_local_run(generation: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a generation in the checkpoint folder of a local run."""
    reader = FileSystemReader(generation)
    state = {
        name: torch.empty(one.size, dtype=one.properties.dtype)
        for name, one in reader.read_metadata().state_dict_metadata.items()
        if isinstance(one, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        # torch warns that only one process loads, which is intended here.
        warnings.simplefilter("ignore")
        state_dict_loader.load(state, storage_reader=reader, no_dist=True)
    return state
