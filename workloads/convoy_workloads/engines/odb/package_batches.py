"""The loader of the published package `online-dynamic-batching` as an arm of the bench.

Its import is here only, and the bench installs it in a folder of its own, so the engine does not need it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import DistributedSampler

from convoy.data import BatchInfo, pad_batch
from convoy_workloads.engines.odb.documents import Documents
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.engines.odb.training import Truncated

REQUIREMENTS = ("online-dynamic-batching==0.1.2",)


class Listed:
    """Documents with a number for each, in the form that the package reads."""

    def __init__(self, documents: Documents, longest: int) -> None:
        self._cut, self._count = Truncated(documents, longest), len(documents)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return self._cut[number]


class PackageBatches:
    """Batches of the package's ODBDataLoader, with the same buffer and budget as online batching."""

    def __init__(self, folder: str, documents: Documents, params: Params, rank: int, world: int) -> None:
        """`folder`: the folder in which the package is installed."""
        sys.path.insert(0, folder)
        os.environ["ODB_ITERATOR_STARTUP_JITTER_SEC"] = "0"
        odb = importlib.import_module("odb")
        self._pop = odb.pop_step_info
        self.info: BatchInfo | None = None
        dataset: Any = Listed(documents, params.longest)
        self._sampler: Any = DistributedSampler(dataset, world, rank, seed=params.seed)
        self._loader = odb.ODBDataLoader(
            dataset,
            token_budget=params.token_budget,
            batch_size=1,
            sampler=self._sampler,
            num_workers=1,
            prefetch_factor=params.window,
            collate_fn=pad_batch,
            loss_scaling="exact",
            join=True,
        )
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch."""
        self._sampler.set_epoch(self._epoch)
        self._epoch += 1
        for batch in self._loader:
            # The counts are tensors with an equal element for each sample.
            total = int(batch["odb_total_tokens"].flatten()[0])
            step = self._pop(batch, loss_scaling="exact")
            samples, weight = tuple(batch["number"].tolist()), int((batch["labels"] >= 0).sum())
            self.info = BatchInfo(
                samples, weight, int(step.all_samples_this_step), total, float(step.loss_scale)
            )
            yield batch
