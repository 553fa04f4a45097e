"""Models of the family Llama: read from a folder in the form of Hugging Face, or made by a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from torch import Tensor, nn

from convoy_workloads.engines.gpt.model import VOCABULARY
from convoy_workloads.engines.lm.llama import Frequencies, Layer, Llama, RMSNorm
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.tensor_files import Tensors, copy_tensor
from convoy_workloads.engines.lm.transformer import Shape
from convoy_workloads.serving.protocol import ModelError

FAMILIES = ("llama", "mistral", "qwen2")
"""Values of `model_type` that this module reads."""
MOST_SIZE = 1 << 24
"""Most rows, columns or positions of a model."""
MOST_LAYERS = 4096
MOST_WEIGHTS = 1 << 36
"""Most weights of a matrix."""
DEFAULT_HEADS = 4
STD = 0.02
"""Standard deviation of the weights of a model that is made by a seed."""


@dataclass(frozen=True)
class Config:
    """The facts of a `config.json`."""

    shape: Shape
    feed: int
    epsilon: float
    frequencies: Frequencies
    qkv_bias: bool
    tied: bool

    def model(self) -> Llama:
        """Return a model of this form, whose weights are not yet set."""
        return Llama(
            self.shape,
            self.feed,
            epsilon=self.epsilon,
            frequencies=self.frequencies,
            qkv_bias=self.qkv_bias,
            tied=self.tied,
        )


_Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]


class _Rope(BaseModel):
    """The rotary positions in a `config.json`."""

    kind: Literal["default", "llama3"] = Field("default", validation_alias=AliasChoices("rope_type", "type"))
    rope_theta: PositiveFloat | None = None
    factor: PositiveFloat = 1.0
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    original_max_position_embeddings: PositiveInt = 8192


class _ConfigFile(BaseModel):
    """The fields of a `config.json` that this engine reads."""

    model_type: str
    hidden_act: Literal["silu"] = "silu"
    vocab_size: _Size
    max_position_embeddings: _Size
    num_hidden_layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    hidden_size: _Size
    intermediate_size: _Size
    num_attention_heads: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    rms_norm_eps: PositiveFloat = 1e-6
    attention_bias: bool | None = None
    tie_word_embeddings: bool = False
    rope_theta: PositiveFloat = 10_000.0
    # transformers 5 writes `rope_parameters`, earlier versions `rope_theta` and `rope_scaling`.
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None
    partial_rotary_factor: Literal[1] = 1
    sliding_window: int | None = None
    use_sliding_window: bool = True

    @model_validator(mode="after")
    def _fits(self) -> _ConfigFile:
        if self.sliding_window is not None and self.use_sliding_window:
            raise ValueError("sliding_window: is not supported, because this engine attends to all positions")
        if self.num_attention_heads % (self.num_key_value_heads or 1):
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} must divide num_attention_heads, which is "
                f"{self.num_attention_heads}"
            )
        queries = self.num_attention_heads * self.head_width
        for name, rows in (
            ("vocab_size", self.vocab_size),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", queries),
        ):
            if rows * self.hidden_size > MOST_WEIGHTS:
                raise ValueError(
                    f"{name}: a matrix of {rows} x {self.hidden_size} has more than {MOST_WEIGHTS} weights"
                )
        if self.head_width % 2:
            raise ValueError(f"head_dim: {self.head_width} must be even")
        both = (self.rope_parameters, self.rope_scaling)
        first, second = (one.model_dump(exclude={"rope_theta"}) if one else None for one in both)
        if first and second and first != second:
            raise ValueError("rope_scaling: differs from rope_parameters: delete the wrong one")
        if self.rope.high_freq_factor <= self.rope.low_freq_factor:
            raise ValueError(
                f"high_freq_factor: {self.rope.high_freq_factor} must be above low_freq_factor, which is "
                f"{self.rope.low_freq_factor}"
            )
        return self

    @property
    def rope(self) -> _Rope:
        return self.rope_parameters or self.rope_scaling or _Rope.model_validate({})

    @property
    def head_width(self) -> int:
        return self.head_dim or max(1, self.hidden_size // self.num_attention_heads)


def read(path: Path, body: Mapping[str, object]) -> Config:
    """Return the facts of a `config.json`. Raises ModelError, with the field, if they cannot be used."""
    try:
        file = _ConfigFile.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ModelError(
            f"{path}: {where}: {first['msg']}" if where else f"{path}: {first['msg']}"
        ) from error
    shape = Shape(
        file.vocab_size,
        file.max_position_embeddings,
        file.num_hidden_layers,
        file.hidden_size,
        file.num_attention_heads,
        file.num_key_value_heads or file.num_attention_heads,
        file.head_width,
    )
    rope = file.rope
    base = rope.rope_theta or file.rope_theta
    stretched = Frequencies(
        base,
        rope.factor,
        rope.low_freq_factor,
        rope.high_freq_factor,
        rope.original_max_position_embeddings,
    )
    # Qwen2 always has these biases, and its files do not have the field.
    bias = file.model_type == "qwen2" if file.attention_bias is None else file.attention_bias
    frequencies = stretched if rope.kind == "llama3" else Frequencies(base)
    return Config(
        shape, file.intermediate_size, file.rms_norm_eps, frequencies, bias, file.tie_word_embeddings
    )


def load(path: Path, config: Config, tensors: Tensors, renew: Callable[[], None]) -> Llama:
    """Return the model in a folder. Raises ModelError, with the tensor, if it cannot be used."""
    model = empty(config)

    def copy(name: str, target: Tensor) -> None:
        if name not in tensors.names:
            raise ModelError(f"{path} lacks the tensor {name}")
        copy_tensor(name, tensors.get(name), target)
        renew()

    check_names(path, config, tensors.names)
    copy("model.embed_tokens.weight", model.tokens.weight)
    copy("model.norm.weight", model.norm.weight)
    if not config.tied:
        copy("lm_head.weight", model.head.weight)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)  # noqa: S101 - ModuleList has no type of its elements
        for name, target in _targets(layer, config).items():
            copy(f"model.layers.{number}.{name}", target)
    return model.eval()


def check_names(path: Path, config: Config, names: Iterable[str], ends: Iterable[str] = ("weight",)) -> None:
    """Raise ModelError if the files have a tensor that the model does not use. Without that tensor, the model
    would compute something else.

    `ends`: ends of the names of a matrix's tensors.
    """
    linear: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    linear += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    own = {f"{matrix}.{end}" for matrix in linear for end in ends}
    own |= {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.rotary_emb.inv_freq"}
    own |= {f"{matrix}.bias" for matrix in linear[:3] if config.qkv_bias}
    used = {f"model.layers.{number}.{name}" for number in range(config.shape.layers) for name in own}
    used |= {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    if unused := sorted(set(names) - used):
        raise ModelError(
            f"{path} has the tensor {unused[0]}, which does not belong to a model with this config.json"
        )


def empty(config: Config) -> Llama:
    """Return a model with memory for its weights, and with its rotary positions. Raises ModelError if the
    memory does not suffice.
    """
    model = skeleton(config)
    cosines, sines = model.cosines, model.sines
    try:
        model = model.to_empty(device="cpu")
    except (RuntimeError, MemoryError) as error:
        weights, shape = sum(one.numel() for one in model.parameters()), config.shape
        raise ModelError(
            f"config.json: no memory for {weights} weights, with vocab_size {shape.vocabulary}, hidden_size "
            f"{shape.width} and num_hidden_layers {shape.layers}: {error}"
        ) from error
    model.cosines, model.sines = cosines, sines
    if config.tied:
        model.head.weight = model.tokens.weight
    return model


def skeleton(config: Config) -> Llama:
    """Return a model without memory for its weights, but with its rotary positions."""
    with torch.device("meta"):
        model = config.model()
    model.cosines, model.sines = config.frequencies.tables(config.shape)
    return model


def _targets(layer: Layer, config: Config) -> dict[str, Tensor]:
    """Return the part of a layer's weights that each tensor of the files fills."""
    shape, feed = config.shape, config.feed
    sizes = [shape.heads * shape.head_width, *[shape.kv_heads * shape.head_width] * 2]
    found: dict[str, Tensor] = {
        "input_layernorm.weight": layer.norm_attention.weight,
        "post_attention_layernorm.weight": layer.norm_feed.weight,
        "self_attn.o_proj.weight": layer.out.weight,
        "mlp.down_proj.weight": layer.down.weight,
    }
    parts = zip("qkv", torch.split(layer.qkv.weight, sizes), strict=True)
    found |= {f"self_attn.{one}_proj.weight": part for one, part in parts}
    if layer.qkv.bias is not None:
        biases = zip("qkv", torch.split(layer.qkv.bias, sizes), strict=True)
        found |= {f"self_attn.{one}_proj.bias": part for one, part in biases}
    gate, up = torch.split(layer.gate_up.weight, feed)
    return {**found, "mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up}


def own_model(params: Params) -> Llama:
    """Return a model over bytes with random weights. Raises ModelError if the sizes do not fit."""
    heads = params.heads or DEFAULT_HEADS
    kv_heads = params.kv_heads or heads
    if params.width % (2 * heads):
        raise ModelError(f"params.width: {params.width} must be a multiple of 2 * heads={2 * heads}")
    if heads % kv_heads:
        raise ModelError(f"params.kv_heads: {kv_heads} must divide heads={heads}")
    feed = params.feed or math.ceil(params.width * 8 / 3 / 64) * 64
    shape = Shape(
        VOCABULARY, params.context, params.layers, params.width, heads, kv_heads, params.width // heads
    )
    generator = torch.Generator().manual_seed(params.seed)
    config = Config(shape, feed, 1e-5, Frequencies(), qkv_bias=False, tied=False)
    model = empty(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0, STD, generator=generator)
            elif isinstance(module, RMSNorm):
                module.weight.fill_(1.0)
    return model.eval()
