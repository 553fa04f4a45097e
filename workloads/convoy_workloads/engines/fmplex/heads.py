"""The heads of tasks. A head is called with the features of one row, so its result depends on no other row,
and its fault ends only the requests of its task.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.fmplex.params import HEAD, Task
from convoy_workloads.serving.protocol import ModelError


class HeadError(Exception):
    """Raised if a head fails for a row. The message names the task."""


class Embed(nn.Module):
    """The head that returns the features, scaled to length 1."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the embedding."""
        return F.normalize(features, dim=-1)


@dataclass(frozen=True)
class Head:
    """The head of one task."""

    task: str
    module: nn.Module
    output: str
    """Name of the output tensor."""
    size: int
    """Number of values of a row's result."""

    @torch.inference_mode()
    def start(self, features_C: Tensor) -> Tensor:
        """Return the result of one row. A GPU may still compute it. Raises HeadError, whatever the head
        raises.
        """
        try:
            found = self.module(features_C[None])
            if not isinstance(found, Tensor) or found.shape[0] != 1 or found.numel() != self.size:
                shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise ValueError(f"it returned {shape} instead of {self.size} values")
            return found.reshape(self.size).to(features_C.device, torch.float32)
        except Exception as error:  # The code of a head may raise any error.
            raise self._error(error) from error

    def checked(self, result: Tensor) -> Tensor:
        """Return the result of one row in the memory of the CPU. Raises HeadError if it is not finite."""
        if not torch.isfinite(result).all():
            raise self._error(ValueError("its result has values that are not finite"))
        return result

    def _error(self, error: Exception) -> HeadError:
        return HeadError(f"the head of task {self.task!r} has failed: {type(error).__name__}: {error}")


def compute(rows: Sequence[tuple[Head, Tensor]]) -> list[Tensor | HeadError]:
    """Return the result of each row, in the memory of the CPU, or the error of its head. The heads compute
    one after the other, and all results are copied at once: a copy from a GPU waits for the GPU.
    """
    started = [_outcome(head.start, features_C) for head, features_C in rows]
    there = [one for one in started if isinstance(one, Tensor)]
    copied = iter(torch.split(torch.cat(there).cpu(), [len(one) for one in there]) if there else ())
    return [
        _outcome(head.checked, next(copied)) if isinstance(one, Tensor) else one
        for one, (head, _) in zip(started, rows, strict=True)
    ]


def _outcome(function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor | HeadError:
    try:
        return function(given)
    except HeadError as error:
        return error


def make(task: Task, width: int, tensors: Mapping[str, Tensor], device: torch.device) -> Head:
    """Return the head of a task. `tensors`: tensors of the task's file. Raises ModelError if the head cannot
    be made.
    """
    found = HEAD.fullmatch(task.head)
    if found is None:
        raise ModelError(f"task {task.name!r}: head {task.head!r} is unknown")
    if found["module"]:
        return _own(task, found["module"], found["function"], width, device)
    if found["classes"]:
        classes = int(found["classes"])
        return Head(task.name, _classifier(task, width, classes, tensors).to(device), "scores", classes)
    return Head(task.name, Embed(), "embedding", width)


def _classifier(task: Task, width: int, classes: int, tensors: Mapping[str, Tensor]) -> nn.Module:
    layer = nn.Linear(width, classes)
    generator = torch.Generator().manual_seed(zlib.crc32(task.name.encode()))
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) / width**0.5)
        layer.bias.zero_()
        for name, target in (("head.weight", layer.weight), ("head.bias", layer.bias)):
            one = tensors.get(name)
            if one is not None and one.shape != target.shape:
                raise ModelError(
                    f"task {task.name!r}: tensor {name} has shape {list(one.shape)}, expected "
                    f"{list(target.shape)}"
                )
            if one is not None:
                target.copy_(one)
    return layer.eval()


def _own(task: Task, module: str, function: str, width: int, device: torch.device) -> Head:
    """Return a head from the image. It is tried with features of zero, which also shows the size of its
    result.
    """
    try:
        made = getattr(importlib.import_module(module), function)(task.name, width).to(device).eval()
        with torch.inference_mode():
            size = int(made(torch.zeros(1, width, device=device)).numel())
    except Exception as error:  # The code of a head may raise any error.
        raise ModelError(
            f"task {task.name!r}: head {task.head!r} cannot be made: {type(error).__name__}: {error}"
        ) from error
    return Head(task.name, made, "scores", size)
