"""A small engine for tests."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from convoy_workloads.engines.fmplex.engine import Multiplexer
from convoy_workloads.engines.fmplex.params import Params
from convoy_workloads.serving.protocol import Inference, Prediction

TEXT = {"name": "text", "kind": "Text", "layers": 2, "width": 32, "heads": 2, "context": 48, "seed": 3}
IMAGE = {
    "name": "image",
    "kind": "Image",
    "layers": 1,
    "width": 32,
    "heads": 2,
    "image_size": 16,
    "patch": 4,
}
HALF = {**TEXT, "name": "half", "dtype": "BFloat16"}
CPU = torch.device("cpu")


class Crashing(nn.Module):
    """A head that fails for texts whose first feature is above a bound."""

    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.broken = broken

    def forward(self, features: Tensor) -> Tensor:
        if self.broken and features.abs().sum() > 0:
            raise RuntimeError("this head is broken")
        return features[:, :2]


def crashing(task: str, width: int) -> nn.Module:
    return Crashing(broken=True)


def not_finite(task: str, width: int) -> nn.Module:
    class Head(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features[:, :2] / 0 if features.any() else features[:, :2]

    return Head()


def no_head(task: str, width: int) -> nn.Module:
    raise OSError("the head's file is missing")


HERE = f"python:{__name__}:"


def params(tasks: Sequence[dict[str, Any]], **more: Any) -> Params:
    """Return parameters with two small backbones. Batches do not wait."""
    body = {
        "backbones": [TEXT, IMAGE, HALF],
        "batch": {"max": 8, "max_wait_ms": 0},
        "tasks": list(tasks),
        **more,
    }
    return Params.model_validate(body)


def engine(tasks: Sequence[dict[str, Any]], path: Path | None = None, **more: Any) -> Multiplexer:
    """Return an engine that has loaded the tasks."""
    torch.set_num_threads(1)
    made = Multiplexer(params(tasks, **more), path, CPU)
    made.load(lambda: None)
    return made


def texts(id_: int, task: str, *rows: str) -> Inference:
    return Inference(id_, task, {"text": np.array(rows, dtype=object)}, (), len(rows))


@functools.cache
def pixels(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).random((3, 16, 16), dtype=np.float32)


def images(id_: int, task: str, *seeds: int) -> Inference:
    return Inference(id_, task, {"image": np.stack([pixels(one) for one in seeds])}, (), len(seeds))


def run(made: Multiplexer, *inferences: Inference) -> dict[int, Prediction]:
    """Serve the requests. Return their results by id."""
    for one in inferences:
        assert made.admit(one)
    found: dict[int, Prediction] = {}
    for _ in range(1000):
        for result in made.step():
            assert result.sequence not in found
            found[result.sequence] = result
        if len(found) == len(inferences):
            return found
    raise AssertionError(f"only {len(found)} of {len(inferences)} requests ended")


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file."""
    entries = {
        name: {"dtype": "F32", "shape": list(one.shape), "data_offsets": [0, 0]}
        for name, one in tensors.items()
    }
    at = 0
    for name, one in tensors.items():
        entries[name]["data_offsets"] = [at, at + 4 * one.numel()]
        at += 4 * one.numel()
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    data = b"".join(one.numpy().tobytes() for one in tensors.values())
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def values(prediction: Prediction) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the only output. The request must have succeeded."""
    assert prediction.error is None, prediction.error
    (table,) = prediction.outputs.values()
    return table
