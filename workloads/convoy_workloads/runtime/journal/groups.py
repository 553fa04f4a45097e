"""What an optimizer consumes beside gradients: the scalars of its groups, a gradient scaler's marks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_NO_SCALARS = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
"""Entries of a group that are no number of a step; how it is computed is in the kernel."""
_SCALING = ("grad_scale", "found_inf")


def scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """By group: learning rate, betas, weight decay and whatever else the program keeps there."""
    return [
        {key: value for key, value in group.items() if key not in _NO_SCALARS}
        for group in optimizer.param_groups
    ]


def set_scalars(optimizer: torch.optim.Optimizer, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Gives the groups the scalars that `scalars` had found."""
    for group, one in zip(optimizer.param_groups, wanted):  # noqa: B905 - `strict` came with Python 3.10
        group.update(one)


def structure(optimizer: torch.optim.Optimizer) -> str:
    """A digest of the groups: how many, and the shapes and types of their parameters."""
    rows = [[f"{tuple(one.shape)}{one.dtype}" for one in group["params"]] for group in optimizer.param_groups]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def members(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """What may not change while a chain lasts: the parameters themselves, and which of them are trained."""
    return tuple(
        tuple((id(one), one.requires_grad, one.dtype, one.shape) for one in group["params"])
        for group in optimizer.param_groups
    )


def versions(optimizer: torch.optim.Optimizer) -> list[tuple[int, ...]]:
    """By parameter, in the order of the groups: torch's counters of writes to it and to its state."""
    found = []
    for group in optimizer.param_groups:
        for one in group["params"]:
            state = optimizer.state.get(one, {})
            held = [value for value in state.values() if isinstance(value, torch.Tensor)]
            found.append((one._version, *(id(value) for value in held), *(value._version for value in held)))
    return found


def scaling(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a gradient scaler has handed to a fused kernel: the factor, and whether the step is void."""
    return {name: getattr(optimizer, name) for name in _SCALING if hasattr(optimizer, name)}


@contextmanager
def scaled(
    optimizer: torch.optim.Optimizer, marks: Mapping[str, Any], device: torch.device
) -> Iterator[None]:
    """Hands `marks` to the optimizer for one step."""
    for name, value in marks.items():
        setattr(optimizer, name, value.to(device) if isinstance(value, torch.Tensor) else value)
    try:
        yield
    finally:
        for name in marks:
            delattr(optimizer, name)
