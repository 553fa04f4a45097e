"""The model that the engine loads: weights from files, or made by a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from convoy_workloads.engines.gpt.model import GPT, VOCABULARY
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.serving.model_folder import record, shard_files
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile
from convoy_workloads.tensors.whole import ShardError, Whole, open_shard

PICKLES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".distcp"})
"""Suffixes of files that hold or need pickles."""
CONFIG = "config.json"
DEFAULT_HEADS = 4


@dataclass(frozen=True)
class Loaded:
    """A model and the facts about it."""

    model: GPT
    source: str
    """Origin of the weights, in one sentence."""
    facts: Mapping[str, object]


class _Tensors(Protocol):
    """The tensors of a model's files."""

    facts: Mapping[str, object]
    config: Mapping[str, object]
    names: frozenset[str]

    def get(self, name: str) -> Tensor:
        """Return a tensor."""
        ...


def load(path: Path | None, params: Params, renew: Callable[[], None]) -> Loaded:
    """Return the model in the folder `path`, or the engine's own model if `path` is None.

    Raises ModelError, with the file or the tensor, if the model cannot be used.
    """
    if path is None:
        return _own_model(params)
    try:
        tensors = _open(path, params)
        renew()
        return _from_files(path, tensors, params, renew)
    except (OSError, ShardError) as error:
        raise ModelError(f"the model in {path} cannot be read: {error}") from error


def _own_model(params: Params) -> Loaded:
    heads = params.heads or DEFAULT_HEADS
    if params.width % heads:
        raise ModelError(f"params.width: {params.width} must be a multiple of heads={heads}")
    generator = torch.get_rng_state()
    torch.manual_seed(params.seed)
    model = GPT(params.context, params.layers, params.width, heads)
    torch.set_rng_state(generator)
    source = (
        f"random weights from seed {params.seed}, because spec.model is not set: the model is not trained"
    )
    return Loaded(model.eval(), source, {"trained": False})


def _open(path: Path, params: Params) -> _Tensors:
    """Return the tensors in a folder, or in a safetensors file."""
    if path.is_file() and path.suffix == ".safetensors":
        return _Safetensors([path], {})
    if not path.is_dir():
        raise ModelError(f"the model's folder {path} does not exist")
    if files := sorted(path.glob("*.safetensors")):
        config = path / CONFIG
        return _Safetensors(files, _config(config) if config.exists() else {})
    shards = path / "shards"
    if shards.is_dir():
        return _Shards(shard_files(shards), record(path))
    if pickles := sorted(
        one.name for one in path.rglob("*") if one.suffix in PICKLES or one.name == ".metadata"
    ):
        raise ModelError(
            f"{path} has {pickles[0]}, which holds a pickle. A pickle can run any code, so it is refused: "
            "export the model with `convoy checkpoint export NAME --to model.safetensors`"
        )
    raise ModelError(f"{path} has neither *.safetensors files nor the shards of a generation")


def _config(file: Path) -> dict[str, object]:
    try:
        body = json.loads(file.read_bytes())
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise ModelError(f"{file} must hold a JSON object")
    return body


def _metadata(file: SafetensorsFile, name: str) -> dict[str, object]:
    """Return the JSON object that a file's metadata has under `name`; empty if there is none."""
    try:
        found = json.loads(file.metadata.get(name, "{}"))
    except ValueError as error:
        raise ModelError(f"{file.path}: __metadata__.{name} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{file.path}: __metadata__.{name} must be a JSON object")
    return found


class _Safetensors:
    """The tensors of one or more safetensors files."""

    def __init__(self, files: list[Path], config: Mapping[str, object]) -> None:
        self._opened = [SafetensorsFile(file) for file in files]
        self._where: dict[str, SafetensorsFile] = {}
        saved: dict[str, object] = {}
        facts: dict[str, object] = {}
        for one in self._opened:
            self._where.update(dict.fromkeys(one.entries, one))
            saved |= _metadata(one, "values")
            generation = _metadata(one, "generation")
            facts |= {name: generation[name] for name in ("job", "step", "incarnation") if name in generation}
        self.facts: Mapping[str, object] = facts
        self.config: Mapping[str, object] = {**_saved_config(saved), **config}
        self.names = frozenset(self._where)

    def get(self, name: str) -> Tensor:
        """Return a tensor."""
        return self._where[name].tensor(name)


class _Shards:
    """The tensors of a generation's shards."""

    def __init__(self, files: list[Path], facts: Mapping[str, object]) -> None:
        self._whole = Whole(open_shard(file) for file in files)
        self.facts = facts
        self.names = frozenset(self._whole.names)
        try:
            values = {name: json.loads(text) for name, text in self._whole.values.items()}
        except ValueError as error:
            raise ModelError(f"{files[0]}: a value beside the tensors is not valid JSON: {error}") from error
        self.config: Mapping[str, object] = _saved_config(values)

    def get(self, name: str) -> Tensor:
        """Return a tensor."""
        return self._whole.tensor(name)


def _saved_config(values: Mapping[str, object]) -> dict[str, object]:
    """Return the shape of the model that `gpt` saves with its weights."""
    prefix = "extra.shape."
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _from_files(path: Path, tensors: _Tensors, params: Params, renew: Callable[[], None]) -> Loaded:
    prefix = "model." if any(name.startswith("model.") for name in tensors.names) else ""

    def get(name: str) -> Tensor:
        if prefix + name not in tensors.names:
            raise ModelError(f"{path} lacks the tensor {prefix}{name} of a gpt model")
        return tensors.get(prefix + name)

    if f"{prefix}blocks.0.experts.gate.weight" in tensors.names:
        raise ModelError(f"{path} has a mixture of experts, but this engine serves dense models only")
    embedding, positions = get("tokens.weight"), get("positions.weight")
    if embedding.dim() != 2 or embedding.shape[0] != VOCABULARY:
        raise ModelError(
            f"tensor {prefix}tokens.weight has shape {list(embedding.shape)}, expected [{VOCABULARY}, width]"
        )
    width, context = int(embedding.shape[1]), int(positions.shape[0])
    layers = 0
    while f"{prefix}blocks.{layers}.qkv.weight" in tensors.names:
        layers += 1
    if not layers:
        raise ModelError(f"{path} lacks the tensor {prefix}blocks.0.qkv.weight of a gpt model")
    model = GPT(context, layers, width, _heads(path, tensors.config, params, width))
    for name, target in model.state_dict().items():
        if name == "head.weight" and prefix + name not in tensors.names:
            continue  # The output uses the same weights as the input.
        _copy(prefix + name, get(name), target)
        renew()
    return Loaded(model.eval(), f"the checkpoint in {path}", {"trained": True, **tensors.facts})


def _heads(path: Path, config: Mapping[str, object], params: Params, width: int) -> int:
    """Return the number of attention heads, which no tensor shows."""
    found = config.get("heads", config.get("n_head", params.heads or None))
    if found is None:
        raise ModelError(
            f"{path} does not contain the number of attention heads: set params.heads to that of the training"
        )
    if not isinstance(found, int) or found < 1 or width % found:
        raise ModelError(f"the model has {found!r} attention heads, which do not divide its width of {width}")
    if params.heads not in (0, found):
        raise ModelError(f"params.heads: {params.heads} differs from the model's {found} attention heads")
    return found


def _copy(name: str, source: Tensor, target: Tensor) -> None:
    if source.shape != target.shape:
        raise ModelError(f"tensor {name} has shape {list(source.shape)}, expected {list(target.shape)}")
    if source.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise ModelError(f"tensor {name} has type {source.dtype}, expected a floating-point type")
    if not torch.isfinite(source).all():
        raise ModelError(f"tensor {name} has values that are not finite")
    with torch.no_grad():
        target.copy_(source)
