"""The host of a pod: its loaded backbones, and the adapters of the tasks that are placed on the pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from convoy_workloads.engines.fmplex import backbones
from convoy_workloads.engines.fmplex.adapters import (
    NO_ADAPTER,
    AdapterShape,
    checked,
    random_adapter,
)
from convoy_workloads.engines.fmplex.forms import Form
from convoy_workloads.engines.fmplex.params import ADAPTER, Backbone, Params, Task
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile
from convoy_workloads.tensors.whole import ShardError


class Host(Protocol):
    """A pod's part of the engine, as rank 0 uses it."""

    def attach(self, task: Task, backbone: Backbone, slot: int) -> None:
        """Load a task's adapter, and its backbone if the pod does not have it. Raises ModelError, with the
        task, if the files cannot be used or the memory does not suffice.
        """
        ...

    def detach(self, backbone: Backbone, slot: int) -> None:
        """Drop an adapter. The backbone is dropped with its last task."""
        ...

    def features(self, backbone: Backbone, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the features [B, C] of the packed rows of a batch."""
        ...

    def idle(self) -> None:
        """Show the pod that rank 0 is alive."""
        ...

    def close(self) -> None:
        """Let the pod end."""
        ...


class LocalHost:
    """The host in this process."""

    def __init__(
        self, params: Params, path: Path | None, device: torch.device, renew: Callable[[], None]
    ) -> None:
        """`path`: folder of the model; None if there is none. `renew` is called during a load."""
        self._params = params
        self._path = path
        self._device = device
        self._renew = renew
        self._loaded: dict[str, backbones.SharedBackbone] = {}
        self._tasks: Counter[str] = Counter()
        """Number of tasks by digest of the backbone."""

    @property
    def adapter_bytes(self) -> int:
        """Return the memory of the stacked adapters."""
        return sum(one.adapters.bytes for one in self._loaded.values())

    def attach(self, task: Task, backbone: Backbone, slot: int) -> None:
        """Load a task's adapter, and its backbone if this host does not have it."""
        try:
            loaded = self._loaded.get(backbone.digest) or self._load(backbone)
            if slot != NO_ADAPTER:
                loaded.adapters.put({slot: adapter_of(task, loaded.adapters.shape, self._path)})
        except (RuntimeError, MemoryError) as error:  # PyTorch raises RuntimeError without memory.
            raise ModelError(f"task {task.name!r} cannot be loaded: {error}") from error
        self._loaded[backbone.digest] = loaded
        self._tasks[backbone.digest] += 1
        self._renew()

    def form_of(self, digest: str) -> Form:
        """Return the form of a loaded backbone."""
        return self._loaded[digest].form

    def detach(self, backbone: Backbone, slot: int) -> None:
        """Drop an adapter. The backbone is dropped with its last task."""
        digest = backbone.digest
        if slot != NO_ADAPTER:
            self._loaded[digest].adapters.clear(slot)
        self._tasks[digest] -= 1
        if not self._tasks[digest]:
            del self._loaded[digest], self._tasks[digest]

    def features(self, backbone: Backbone, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the features of the packed rows of a batch."""
        loaded = self._loaded[backbone.digest]
        found = loaded.features(packed.to(self._device), slots_B.to(self._device))
        if self._device.type == "cuda":
            # The caller measures the time of the batch, so wait for its end.
            torch.cuda.current_stream(self._device).synchronize()
        return found

    def idle(self) -> None:
        """Do nothing: this pod is rank 0's own."""

    def close(self) -> None:
        """Do nothing: the process ends."""

    def _load(self, backbone: Backbone) -> backbones.SharedBackbone:
        rank = self._params.adapter_rank
        return backbones.load(backbone, self._path, rank, self._device, self._renew)


def adapter_of(task: Task, shape: AdapterShape, path: Path | None) -> Mapping[str, Tensor]:
    """Return the adapter of a task. Raises ModelError if it cannot be used."""
    found = ADAPTER.fullmatch(task.adapter_ref)
    if found is not None and found["seed"]:
        return random_adapter(shape, int(found["seed"]))
    return checked(tensors_of(task, path), shape, f"task {task.name!r}, file {task.adapter_ref[5:]}")


def tensors_of(task: Task, path: Path | None) -> dict[str, Tensor]:
    """Return the tensors of a task's file; none if the task has no file. Raises ModelError, with the task, if
    the file cannot be read.
    """
    found = ADAPTER.fullmatch(task.adapter_ref)
    if found is None or not found["file"]:
        return {}
    if path is None:
        raise ModelError(f"task {task.name!r}: adapter_ref names a file, but spec.model is not set")
    file = (path if path.is_dir() else path.parent) / found["file"]
    try:
        opened = SafetensorsFile(file)
        return {name: opened.tensor(name) for name in opened.entries}
    except (OSError, ShardError) as error:
        raise ModelError(f"task {task.name!r}: its file cannot be read: {error}") from error
