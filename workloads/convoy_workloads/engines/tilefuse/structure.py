"""The matrices of a model that are quantised, and the names of its tensors in files, for the families of lm.

Queries, keys and values are one matrix, and so are gate and input of a gated feed-forward network. The
embedding, the head, norms and biases are not quantised. A token reads one row of the embedding, the head
decides between tokens with nearly equal logits, and norms and biases are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn

from convoy_workloads.engines.gpt.model import Block
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Layer, Llama

Model = GPTLayers | Llama


@dataclass(frozen=True)
class NormFold:
    """Scales of the matrix's inputs go into the norm before it."""

    norm: nn.Module


@dataclass(frozen=True)
class RowFold:
    """Scales of the matrix's inputs go into rows of another matrix, which make these inputs."""

    owner: nn.Linear
    first: int
    """First row that makes an input."""
    width: int = 1
    """Number of adjacent rows of a head."""
    copies: int = 1
    """Number of inputs that each row makes. The copies of a head follow each other."""


Fold = NormFold | RowFold


@dataclass(frozen=True)
class Matrix:
    """A matrix that is quantised."""

    key: str
    """Name of the module in the model."""
    owner: nn.Module
    attribute: str
    parts: tuple[tuple[str, int], ...]
    """Name in files, without the last part, and number of outputs of each part."""
    fold: Fold | None
    """Place that takes scales of the inputs, exactly; None if there is none."""

    @property
    def module(self) -> nn.Module:
        """Return the linear layer."""
        found: nn.Module = getattr(self.owner, self.attribute)
        return found


@dataclass(frozen=True)
class Structure:
    """The tensors of a model."""

    model: nn.Module
    layers: tuple[tuple[Matrix, ...], ...]
    """The matrices of each layer, in the order in which a row passes them."""
    others: dict[str, Tensor] = field(default_factory=dict)
    """The tensors that are not quantised, by their name in files. Some are views of a part."""

    @property
    def matrices(self) -> Iterator[Matrix]:
        """Return all matrices."""
        return (matrix for layer in self.layers for matrix in layer)


def structure(model: Model) -> Structure:
    """Return the structure of a model."""
    return _llama(model) if isinstance(model, Llama) else _gpt(model)


def _gpt(layers: GPTLayers) -> Structure:
    model, width = layers.model, layers.shape.width
    found, others = (
        [],
        {
            "tokens.weight": model.tokens.weight,
            "positions.weight": model.positions.weight,
            "norm.weight": model.norm.weight,
            "norm.bias": model.norm.bias,
        },
    )
    for number, block in enumerate(model.blocks):
        assert isinstance(block, Block)  # noqa: S101 - ModuleList has no type of its elements
        key = f"blocks.{number}"
        own: dict[str, tuple[int, Fold | None]] = {
            "qkv": (3 * width, NormFold(block.norm_attention)),
            "out": (width, RowFold(block.qkv, 2 * width)),
            "widen": (4 * width, NormFold(block.norm_feed)),
            # GELU is between widen and narrow, and GELU of a scaled number is no scaled GELU.
            "narrow": (width, None),
        }
        found.append(
            tuple(
                Matrix(f"{key}.{name}", block, name, ((f"{key}.{name}", outputs),), fold)
                for name, (outputs, fold) in own.items()
            )
        )
        others |= {f"{key}.{name}.bias": getattr(block, name).bias for name in own}
        for norm in ("norm_attention", "norm_feed"):
            others |= {
                f"{key}.{norm}.{one}": getattr(getattr(block, norm), one) for one in ("weight", "bias")
            }
    return Structure(model, tuple(found), others)


def _llama(model: Llama) -> Structure:
    shape = model.shape
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    found, others = (
        [],
        {"model.embed_tokens.weight": model.tokens.weight, "model.norm.weight": model.norm.weight},
    )
    if model.head.weight is not model.tokens.weight:
        others["lm_head.weight"] = model.head.weight
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)  # noqa: S101 - ModuleList has no type of its elements
        key, file = f"layers.{number}", f"model.layers.{number}"
        feed = _outputs(layer.gate_up) // 2
        qkv = tuple(
            (f"{file}.self_attn.{one}_proj", size)
            for one, size in zip("qkv", (queries, keys, keys), strict=True)
        )
        gate_up = ((f"{file}.mlp.gate_proj", feed), (f"{file}.mlp.up_proj", feed))
        shared = RowFold(layer.qkv, queries + keys, shape.head_width, shape.heads // shape.kv_heads)
        found.append(
            (
                Matrix(f"{key}.qkv", layer, "qkv", qkv, NormFold(layer.norm_attention)),
                Matrix(f"{key}.out", layer, "out", ((f"{file}.self_attn.o_proj", shape.width),), shared),
                Matrix(f"{key}.gate_up", layer, "gate_up", gate_up, NormFold(layer.norm_feed)),
                Matrix(
                    f"{key}.down",
                    layer,
                    "down",
                    ((f"{file}.mlp.down_proj", shape.width),),
                    RowFold(layer.gate_up, feed),
                ),
            )
        )
        others[f"{file}.input_layernorm.weight"] = layer.norm_attention.weight
        others[f"{file}.post_attention_layernorm.weight"] = layer.norm_feed.weight
        if layer.qkv.bias is not None:
            starts = (0, queries, queries + keys)
            for (name, size), start in zip(qkv, starts, strict=True):
                others[f"{name}.bias"] = layer.qkv.bias[start : start + size]
    return Structure(model, tuple(found), others)


def _outputs(linear: nn.Linear) -> int:
    return linear.out_features
