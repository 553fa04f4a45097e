"""Writes checkpoints of torch.distributed.checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex

from convoy_workloads.runtime.tiers import values
from convoy_workloads.tensors.whole import Whole


def write_dcp(folder: Path, whole: Whole) -> None:
    """Write a checkpoint of torch.distributed.checkpoint. Tensors and values keep the names that they were
    saved with.

    Each tensor gets its own file, because torch's writer keeps a whole file in memory.
    """
    state: dict[str, Any] = {name: values.loads(text) for name, text in whole.values.items()}
    for name in whole.names:
        part = whole.part(name)
        state[name] = torch.empty((), dtype=getattr(torch, part.dtype)).expand(part.shape)
    with warnings.catch_warnings():
        # torch warns that only one process saves, which is intended here.
        warnings.simplefilter("ignore")
        state_dict_saver.save(
            state,
            storage_writer=FileSystemWriter(folder, single_file_per_rank=False),
            planner=_Planner(whole),
            no_dist=True,
        )


class _Planner(DefaultSavePlanner):
    """Assembles each tensor only when torch writes it. The state dict has only a placeholder with the
    tensor's shape and type.
    """

    def __init__(self, whole: Whole) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._whole = whole
        self._names = frozenset(whole.names)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the assembled tensor, or the value, that `index` names."""
        return self._whole.tensor(index.fqn) if index.fqn in self._names else super().lookup_object(index)
