"""Loss scaling for batches of different sizes.

DistributedDataParallel averages the gradients of the ranks. With the factor

    world x terms of this rank / terms of all ranks

of each rank's mean loss, this average is the gradient of the mean over all terms of the step, as of one
batch on one rank.
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
        return gradient * ctx.scale, None


def scale_outputs(outputs: Any, scale: float) -> Any:
    """Return the outputs of a model with equal values, whose gradients are multiplied by `scale`. Outputs
    may be tensors, or lists, tuples and mappings of tensors.
    """

    def scaled(value: Any) -> Any:
        if isinstance(value, Tensor) and value.requires_grad:
            return _ScaledGradient.apply(value, scale)  # type: ignore[no-untyped-call]
        return value

    return outputs if scale == 1.0 else tree_map(scaled, outputs)
