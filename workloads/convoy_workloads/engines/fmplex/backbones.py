"""The backbones: transformers over texts and over images, with the adapter of each row's task.

The features of a row depend only on the row and its adapter, down to the last bit. Rows of a batch have the
same length, a multiple of `STEP`, so every matrix product treats them alike. The self-test checks this on
each machine.

The letters in shapes are B rows, T positions, C width, H heads, P values of a patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.fmplex.adapters import AdapterShape, AdapterStack
from convoy_workloads.engines.fmplex.forms import CHANNELS, Form, ImageForm, TextForm
from convoy_workloads.engines.fmplex.params import STEP, Backbone
from convoy_workloads.engines.gpt.model import GPT, VOCABULARY, Block
from convoy_workloads.engines.lm import weights
from convoy_workloads.engines.lm.params import Params as LanguageModelParams
from convoy_workloads.serving.protocol import ModelError

DTYPES = {"Float32": torch.float32, "BFloat16": torch.bfloat16}


@dataclass(frozen=True)
class BackboneFacts:
    """The part of a backbone that all pods of a replica know."""

    form: Form
    layers: int
    width: int
    dtype: torch.dtype
    bytes: int
    """Memory of the weights, without adapters."""
    source: str
    """Origin of the weights, in one sentence for users."""


class SharedBackbone:
    """A loaded backbone and the adapters of its tasks."""

    def __init__(self, model: nn.Module, form: Form, blocks: nn.ModuleList, rank: int) -> None:
        """`rank`: that of the adapters."""
        width = int(next(blocks.parameters()).shape[0])
        self.form = form
        self.device = next(model.parameters()).device
        shape = AdapterShape(len(blocks), width, rank, next(model.parameters()).dtype)
        self.adapters = AdapterStack(shape, self.device)
        self._blocks = blocks

    def features(self, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the features [B, C] of the packed rows of a batch. `slots_B`: slot of each row's adapter."""
        raise NotImplementedError

    def _transform(self, x_BTC: Tensor, slots_B: Tensor, causal: bool) -> Tensor:
        B, T, C = x_BTC.shape
        for number, block in enumerate(self._blocks):
            assert isinstance(block, Block)  # noqa: S101 - ModuleList has no type of its elements
            normed = block.norm_attention(x_BTC)
            mixed = block.qkv(normed) + self.adapters.apply(f"layers.{number}.qkv", normed, slots_B)
            q, k, v = mixed.view(B, T, 3, block.heads, C // block.heads).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            joined = attended.transpose(1, 2).reshape(B, T, C)
            x_BTC = x_BTC + block.out(joined)
            x_BTC = x_BTC + self.adapters.apply(f"layers.{number}.out", joined, slots_B)
            x_BTC = x_BTC + block.narrow(F.gelu(block.widen(block.norm_feed(x_BTC))))
        return x_BTC


class TextBackbone(SharedBackbone):
    """A causal transformer over the bytes of a text. Its features are the mean over the text's bytes."""

    def __init__(self, model: GPT, rank: int) -> None:
        super().__init__(model, _text_form(model), model.blocks, rank)
        self._model = model

    @torch.inference_mode()
    def features(self, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the mean of the outputs at the text's bytes."""
        tokens_BT, sizes_B = packed[:, :-1], packed[:, -1]
        places = torch.arange(tokens_BT.shape[1], device=self.device)
        x_BTC = self._model.tokens(tokens_BT) + self._model.positions(places)
        x_BTC = self._model.norm(self._transform(x_BTC, slots_B, causal=True))
        own = (places < sizes_B[:, None]).float()
        found: Tensor = (x_BTC.float() * own[:, :, None]).sum(1) / sizes_B[:, None]
        return found


class Patches(nn.Module):
    """A transformer over the patches of an image."""

    def __init__(self, spec: Backbone) -> None:
        super().__init__()
        count = (spec.image_size // spec.patch) ** 2
        self.embed = nn.Linear(CHANNELS * spec.patch**2, spec.width)
        self.positions = nn.Embedding(count, spec.width)
        self.blocks = nn.ModuleList(Block(spec.width, spec.heads) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.width)


class ImageBackbone(SharedBackbone):
    """A transformer over the patches of an image. Its features are the mean over all patches."""

    def __init__(self, model: Patches, spec: Backbone, rank: int) -> None:
        super().__init__(model, _image_form(spec), model.blocks, rank)
        self._model = model
        self._patch = spec.patch

    @torch.inference_mode()
    def features(self, packed: Tensor, slots_B: Tensor) -> Tensor:
        """Return the mean of the outputs."""
        patches_BPT = F.unfold(packed, self._patch, stride=self._patch).to(self._model.norm.weight.dtype)
        x_BTC = self._model.embed(patches_BPT.transpose(1, 2).contiguous()) + self._model.positions.weight
        x_BTC = self._model.norm(self._transform(x_BTC, slots_B, causal=False))
        found: Tensor = x_BTC.float().sum(1) / x_BTC.shape[1]
        return found


def facts(spec: Backbone, path: Path | None, renew: Callable[[], None]) -> BackboneFacts:
    """Return the facts about a backbone. Raises ModelError if its weights cannot be used."""
    dtype = DTYPES[spec.dtype]
    if spec.source == "Model":
        model, source = _from_checkpoint(spec, path, renew)
        width = int(model.tokens.weight.shape[1])
        return BackboneFacts(
            _text_form(model), len(model.blocks), width, dtype, _bytes(model) * dtype.itemsize // 4, source
        )
    form: Form = TextForm(spec.context) if spec.kind == "Text" else _image_form(spec)
    source = f"random weights from seed {spec.seed}: the backbone is not trained"
    return BackboneFacts(form, spec.layers, spec.width, dtype, _size(spec) * dtype.itemsize, source)


def load(
    spec: Backbone, path: Path | None, rank: int, device: torch.device, renew: Callable[[], None]
) -> SharedBackbone:
    """Return a loaded backbone. `rank`: that of its adapters. Raises ModelError if its weights cannot be
    used.
    """
    dtype = DTYPES[spec.dtype]
    if spec.source == "Model":
        return TextBackbone(_from_checkpoint(spec, path, renew)[0].to(device, dtype), rank)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        if spec.kind == "Text":
            return TextBackbone(_language_model(spec).eval().to(device, dtype), rank)
        return ImageBackbone(Patches(spec).eval().to(device, dtype), spec, rank)


def _language_model(spec: Backbone) -> GPT:
    return GPT(spec.context, spec.layers, spec.width, spec.heads)


def _from_checkpoint(spec: Backbone, path: Path | None, renew: Callable[[], None]) -> tuple[GPT, str]:
    if path is None:
        raise ModelError(f"backbone {spec.name!r} has source Model, but spec.model is not set")
    found = weights.load(path, LanguageModelParams(), renew)
    if found.model.context < STEP:
        raise ModelError(f"backbone {spec.name!r}: a context of {found.model.context} is less than {STEP}")
    return found.model, found.source


def _size(spec: Backbone) -> int:
    """Return the number of weights of a backbone from a seed. Building one to count them would take
    seconds.
    """
    C = spec.width
    ends = 2 * C  # the last norm
    if spec.kind == "Text":
        ends += (VOCABULARY + spec.context) * C
    else:
        values = CHANNELS * spec.patch**2
        ends += (values + 1 + (spec.image_size // spec.patch) ** 2) * C
    return ends + spec.layers * (12 * C * C + 13 * C)


def _text_form(model: GPT) -> TextForm:
    return TextForm(model.context // STEP * STEP)


def _image_form(spec: Backbone) -> ImageForm:
    return ImageForm(spec.image_size, spec.patch)


def _bytes(model: nn.Module) -> int:
    return sum(one.numel() * one.element_size() for one in model.parameters())
