"""The models of the engine gpt: weights from files, or made by a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from convoy_crds.shown import shown
from convoy_workloads.engines.gpt.model import GPT, VOCABULARY
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.tensor_files import Tensors, copy_tensor, open_tensors
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.whole import ShardError

DEFAULT_HEADS = 4


@dataclass(frozen=True)
class Loaded:
    """A model, the origin of its weights, and the facts that the model card lists."""

    model: GPT
    source: str
    """Origin of the weights, in one sentence."""
    facts: Mapping[str, object]


def load(path: Path | None, params: Params, renew: Callable[[], None]) -> Loaded:
    """Return the model in the folder `path`, or the engine's own model if `path` is None.

    Raises ModelError, with the file or the tensor, if the model cannot be used.
    """
    if path is None:
        return _own_model(params)
    try:
        tensors = open_tensors(path)
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
    return Loaded(model.eval(), untrained(params), {"trained": False})


def untrained(params: Params) -> str:
    """Return the origin of the weights of an engine's own model."""
    return f"random weights from seed {params.seed}, because spec.model is not set: the model is not trained"


def _from_files(path: Path, tensors: Tensors, params: Params, renew: Callable[[], None]) -> Loaded:
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
        copy_tensor(prefix + name, get(name), target)
        renew()
    return Loaded(model.eval(), f"the checkpoint in {path}", {"trained": True, **tensors.facts})


def _heads(path: Path, config: Mapping[str, object], params: Params, width: int) -> int:
    """Return the number of attention heads, which no tensor shows."""
    found = config.get("heads", config.get("n_head", params.heads or None))
    if found is None:
        raise ModelError(
            f"{path} does not contain the number of attention heads: set params.heads, or --heads of `convoy "
            "quantize`, to that of the training"
        )
    if not isinstance(found, int) or found < 1 or width % found:
        raise ModelError(
            f"the model has {shown(found)} attention heads, which do not divide its width of {width}"
        )
    if params.heads not in (0, found):
        raise ModelError(f"params.heads: {params.heads} differs from the model's {found} attention heads")
    return found
