"""The tensors of a model's files: safetensors, or the shards of a generation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from convoy_workloads.serving.model_folder import record, shard_files
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile
from convoy_workloads.tensors.whole import Whole, open_shard

PICKLES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".distcp"})
"""Suffixes of files that hold or need pickles."""
CONFIG = "config.json"
SHARD_INDEX = "model.safetensors.index.json"
"""File of Hugging Face with the file of each tensor, for a model in several files."""


class Tensors(Protocol):
    """The tensors of a model's files."""

    facts: Mapping[str, object]
    config: Mapping[str, object]
    names: frozenset[str]

    def get(self, name: str) -> Tensor:
        """Return a tensor."""
        ...


def open_tensors(path: Path) -> Tensors:
    """Return the tensors in a folder, or in a safetensors file."""
    if path.is_file() and path.suffix == ".safetensors":
        return _Safetensors([path], {})
    if not path.is_dir():
        raise ModelError(f"the model's folder {path} does not exist")
    if files := _safetensors(path):
        config = path / CONFIG
        return _Safetensors(files, read_config(config) if config.exists() else {})
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


def _safetensors(folder: Path) -> list[Path]:
    """Return the safetensors files of a model. If the folder has an index, only the files that it names
    count: others repeat the weights with other names, such as `consolidated.safetensors` of Mistral
    (vllm-project/vllm pull request 5005). Raises ModelError if one of them is missing.
    """
    file = folder / SHARD_INDEX
    if not file.is_file():
        return sorted(folder.glob("*.safetensors"))
    found = read_config(file).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelError(f"{file}: weight_map: must be an object with the file of each tensor")
    names = {str(one) for one in found.values()}
    for name in sorted(names):
        if name != Path(name).name:
            raise ModelError(f"{file}: weight_map: {name!r} is no name of a file in this folder")
        if not (folder / name).is_file():
            raise ModelError(f"{folder} lacks the file {name}, which {SHARD_INDEX} names: copy it there")
    return [folder / name for name in sorted(names)]


def read_config(file: Path) -> dict[str, object]:
    """Return the JSON object in a file. Raises ModelError if it holds none."""
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
            if twice := sorted(self._where.keys() & one.entries.keys()):
                raise ModelError(
                    f"tensor {twice[0]} is in {self._where[twice[0]].path.name} and in {one.path}: delete "
                    f"the file that does not belong to the model, or add {SHARD_INDEX}"
                )
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


def copy_tensor(name: str, source: Tensor, target: Tensor) -> None:
    """Copy a tensor of a file. Raises ModelError if its shape, type or values cannot be used."""
    if source.shape != target.shape:
        raise ModelError(f"tensor {name} has shape {list(source.shape)}, expected {list(target.shape)}")
    if source.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise ModelError(
            f"tensor {name} has type {source.dtype}, expected float16, bfloat16, float32 or float64"
        )
    if not torch.isfinite(source).all():
        raise ModelError(f"tensor {name} has values that are not finite")
    with torch.no_grad():
        target.copy_(source)
