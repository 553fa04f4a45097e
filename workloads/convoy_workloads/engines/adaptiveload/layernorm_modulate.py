"""The fused LayerNorm-Modulate of a diffusion transformer: y = LayerNorm(x) (1 + scale) + shift.

x is [B, S, D], and scale and shift are [B, D]. The usual operations keep two activations for the backward
pass: x and the normalised x. The fused operation keeps x, and computes the other again from the mean and the
deviation of each row.

On a CPU it runs as a few torch operations, on a GPU as Triton kernels (layernorm_modulate_triton.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-6


def plain_layernorm_modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return the result of the usual operations."""
    normalised = F.layer_norm(x, x.shape[-1:], eps=EPSILON)
    return normalised * (1 + scale[:, None]) + shift[:, None]


def layernorm_modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return the result of the fused operation: with Triton on a GPU, else with torch.

    Raises ValueError if the shapes are not [B, S, D], [B, D] and [B, D].
    """
    if x.dim() != 3 or shift.shape != scale.shape or shift.shape != (x.shape[0], x.shape[2]):
        shapes = tuple(x.shape), tuple(shift.shape), tuple(scale.shape)
        raise ValueError(f"x, shift and scale have the shapes {shapes}, not [B, S, D], [B, D] and [B, D]")
    operation: Any = _EagerOperation
    if x.is_cuda:
        from convoy_workloads.engines.adaptiveload import layernorm_modulate_triton  # noqa: PLC0415

        operation = layernorm_modulate_triton.TritonOperation
    found: Tensor = operation.apply(x, shift, scale, EPSILON)
    return found


class _EagerOperation(torch.autograd.Function):
    """The fused operation, computed by torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, scale: Tensor, epsilon: float) -> Tensor:
        """Return y. Keep x, the factor, and two numbers for each row."""
        mean = x.mean(-1, keepdim=True)
        found = x - mean
        reciprocal = (found.square().mean(-1, keepdim=True) + epsilon).rsqrt_()
        ctx.save_for_backward(x, scale, mean, reciprocal)
        return found.mul_(reciprocal).mul_(1 + scale[:, None]).add_(shift[:, None])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of x, shift and scale."""
        x, scale, mean, reciprocal = ctx.saved_tensors
        normalised = (x - mean).mul_(reciprocal)
        shift_gradient = gradient.sum(1)
        scale_gradient = torch.einsum("bsd,bsd->bd", gradient, normalised)
        found = gradient * (1 + scale[:, None])
        along = (found * normalised).mean(-1, keepdim=True)
        found -= found.mean(-1, keepdim=True)
        found -= normalised.mul_(along)
        return found.mul_(reciprocal), shift_gradient, scale_gradient, None


@contextmanager
def saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes of the tensors that the operations in this context keep for their backward pass. Each
    memory counts once. The context's value returns the number.
    """
    sizes: dict[int, int] = {}
    kept: list[Tensor] = []  # so that no memory is used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(sizes.values())
