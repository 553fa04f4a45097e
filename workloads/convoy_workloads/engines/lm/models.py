"""The model that the engine loads, of any family that it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from convoy_workloads.engines.gpt.model import VOCABULARY
from convoy_workloads.engines.lm import file_tokenizer, llama_files, weights
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Llama
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.tensor_files import CONFIG, open_tensors, read_config
from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.engines.lm.transformer import Transformer
from convoy_workloads.serving.protocol import ModelError, Tokenizer
from convoy_workloads.tensors.whole import ShardError

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer, the origin of its weights, and the facts that the model card lists."""

    model: Transformer
    tokenizer: Tokenizer
    source: str
    """Origin of the weights, in one sentence."""
    facts: Mapping[str, object]


def load(path: Path | None, params: Params, device: torch.device, renew: Callable[[], None]) -> LoadedModel:
    """Return the model in the folder `path`, or the engine's own model if `path` is None.

    Raises ModelError, with the file, the field or the tensor, if the model cannot be used.
    """
    if path is None and params.architecture == "llama":
        model = _placed(llama_files.own_model(params), params, device)
        return LoadedModel(model, ByteTokenizer(), weights.untrained(params), {"trained": False})
    family = _family(path)
    if path is not None and family:
        model, facts = _llama(path, params, device, renew)
        own = tokenizer(path, model.shape.vocabulary)
        return LoadedModel(model, own, f"the model in {path}", {"trained": True, **facts})
    found = weights.load(path, params, renew)
    layers = GPTLayers(_placed(found.model, params, device))
    return LoadedModel(layers, ByteTokenizer(), found.source, found.facts)


def tokenizer(path: Path | None, vocabulary: int) -> Tokenizer:
    """Return the tokenizer of the model in a folder. Raises ModelError if there is none, although the model
    is not over bytes.
    """
    if path is not None and path.is_dir() and (path / file_tokenizer.FILE).is_file():
        return file_tokenizer.read(path, vocabulary)
    if vocabulary != VOCABULARY:
        raise ModelError(
            f"{path} has no {file_tokenizer.FILE}, but the model has {vocabulary} tokens, and only a model "
            f"with {VOCABULARY} is over bytes: add the file {file_tokenizer.FILE} of the model"
        )
    return ByteTokenizer()


def _family(path: Path | None) -> str:
    """Return the `model_type` of a folder's `config.json`; empty without one. Raises ModelError if this
    engine does not serve the family.
    """
    if path is None or not (path / CONFIG).is_file():
        return ""
    config = read_config(path / CONFIG)
    if "quantization_config" in config:
        raise ModelError(f"the model in {path} is quantised: serve it with the engine tilefuse")
    family = str(config.get("model_type", ""))
    if family in ("", "gpt"):
        return ""
    if family not in llama_files.FAMILIES:
        served = ", ".join(llama_files.FAMILIES)
        raise ModelError(f"{path / CONFIG}: model_type {family!r} is not served; served: {served}, and gpt")
    return family


def _llama(
    path: Path, params: Params, device: torch.device, renew: Callable[[], None]
) -> tuple[Llama, Mapping[str, object]]:
    file = path / CONFIG
    config = llama_files.read(file, read_config(file))
    try:
        tensors = open_tensors(path)
        renew()
        model = llama_files.load(path, config, tensors, renew)
    except (OSError, ShardError) as error:
        raise ModelError(f"the model in {path} cannot be read: {error}") from error
    return _placed(model, params, device), tensors.facts


def _placed(model: M, params: Params, device: torch.device) -> M:
    """Return the model on a device, with weights of the parameters' type. Buffers keep their type."""
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[params.dtype]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.to(device, dtype)
    return model.to(device)
