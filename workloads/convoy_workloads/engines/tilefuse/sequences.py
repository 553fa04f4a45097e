"""The forward pass over whole sequences, layer by layer, without a cache. Quantising and measuring use it.

The letters in shapes are those of `lm/transformer.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convoy_workloads.engines.lm.transformer import Transformer

AT_ONCE = 8
"""Windows that are computed together, which bounds the memory for logits."""


def embed(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """Return the residual stream [B, T, C] before the first layer."""
    B, T = tokens_BT.shape
    positions = torch.arange(T).repeat(B)
    return model.embed(tokens_BT.flatten(), positions).view(B, T, -1)


def layer(model: Transformer, number: int, x_BTC: Tensor) -> Tensor:
    """Return the residual stream after a layer."""
    (B, T, C), shape = x_BTC.shape, model.shape
    rows = x_BTC.reshape(B * T, C)
    inputs = model.attention_inputs(number, rows, torch.arange(T).repeat(B))
    q, k, v = (one.reshape(B, T, -1, shape.head_width).transpose(1, 2).float() for one in inputs)
    groups = shape.heads // shape.kv_heads
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).to(rows.dtype)
    return model.after_attention(number, rows, mixed.transpose(1, 2).reshape(B * T, -1)).view(B, T, C)


def logits(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """Return the logits [B, T, V]."""
    B, T = tokens_BT.shape
    x = embed(model, tokens_BT)
    for number in range(model.shape.layers):
        x = layer(model, number, x)
    return model.logits(x.view(B * T, -1)).view(B, T, -1)


def loss(model: Transformer, windows: Tensor) -> float:
    """Return the mean loss in nats per token over windows [B, T + 1] of tokens."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for start in range(0, len(windows), AT_ONCE):
            window = windows[start : start + AT_ONCE]
            found = logits(model, window[:, :-1]).float().flatten(0, 1)
            total += float(F.cross_entropy(found, window[:, 1:].flatten(), reduction="sum"))
            count += window[:, 1:].numel()
    return total / count
