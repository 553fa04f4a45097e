"""The form of a model, without its weights: enough to build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Frequencies, Layer
from convoy_workloads.engines.lm.llama_files import Config, empty, skeleton
from convoy_workloads.engines.lm.transformer import Shape
from convoy_workloads.engines.tilefuse.structure import Model


@dataclass(frozen=True)
class Blueprint:
    """The form of a model."""

    family: str
    """`gpt` or `llama`."""
    values: Mapping[str, Any]

    def model(self) -> Model:
        """Return a model of this form. Its weights have memory, but no values."""
        if self.family != "gpt":
            return empty(self._config()).eval()
        made = self._gpt().to_empty(device="cpu")
        made.head.weight = made.tokens.weight
        return GPTLayers(made.eval())

    def skeleton(self) -> Model:
        """Return a model of this form, whose weights have no memory."""
        if self.family != "gpt":
            return skeleton(self._config()).eval()
        return GPTLayers(self._gpt().eval())

    def _gpt(self) -> GPT:
        with torch.device("meta"):
            return GPT(*(int(self.values[name]) for name in ("context", "layers", "width", "heads")))

    def _config(self) -> Config:
        values = {**self.values}
        shape, frequencies = Shape(**values.pop("shape")), Frequencies(**values.pop("frequencies"))
        return Config(shape=shape, frequencies=frequencies, **values)


def of_config(config: Config) -> Blueprint:
    """Return the form of a model of the family Llama."""
    return Blueprint("llama", asdict(config))


def of_model(model: Model) -> Blueprint:
    """Return the form of a model."""
    if isinstance(model, GPTLayers):
        shape = model.shape
        values = {
            "context": shape.context,
            "layers": shape.layers,
            "width": shape.width,
            "heads": shape.heads,
        }
        return Blueprint("gpt", values)
    first = model.layers[0]
    assert isinstance(first, Layer)  # noqa: S101 - ModuleList has no type of its elements
    return of_config(
        Config(
            model.shape,
            model.feed,
            model.norm.epsilon,
            model.frequencies,
            qkv_bias=first.qkv.bias is not None,
            tied=model.head.weight is model.tokens.weight,
        )
    )
