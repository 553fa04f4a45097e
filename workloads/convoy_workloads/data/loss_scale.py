"""Loss scaling for batches of different sizes.

DistributedDataParallel averages the gradients of the ranks. If each rank multiplies its mean loss by world x
(its terms) / (all ranks' terms), this average is the gradient of the mean over all terms of the step, as of
one batch on one rank.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from convoy_workloads.data.alignment_messages import AlignedStep

LossScaling = Literal["exact", "approx", "none"]


def scale_of(scaling: LossScaling, step: AlignedStep, world: int) -> float:
    """Return the factor of this rank's mean loss: by loss terms, by samples, or 1. It is 0 if the rank has
    no samples.
    """
    if not step.samples:
        return 0.0
    if scaling == "none":
        return 1.0
    own, total = (
        (step.weight, step.all_weights) if scaling == "exact" else (len(step.samples), step.all_samples)
    )
    return own * world / total if total else 0.0


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # A filler counts nothing, also if its loss is not finite.
        return gradient * ctx.scale if ctx.scale else torch.zeros_like(gradient), None


def scale_outputs(outputs: Any, scale: float) -> Any:
    """Return the outputs of a model with equal values, whose gradients are multiplied by `scale`. Outputs
    may be tensors, or lists, tuples and mappings of tensors. Raises TypeError if they show no tensor.
    """

    found = []

    def scaled(value: Any) -> Any:
        if isinstance(value, Tensor):
            found.append(value)
            if value.requires_grad:
                return _ScaledGradient.apply(value, scale)  # type: ignore[no-untyped-call]
        return value

    if scale == 1.0:
        return outputs
    made = tree_map(scaled, outputs)
    if not found and torch.is_grad_enabled():
        raise TypeError(
            f"the model's output of type {type(outputs).__name__} shows no tensor whose gradient can be "
            "scaled: multiply the loss by `scale` instead of `attach`, or register the type as a pytree"
        )
    return made
