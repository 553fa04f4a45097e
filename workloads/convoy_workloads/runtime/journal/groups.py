"""An optimizer's inputs besides gradients: the scalars of its groups and the values of a gradient scaler."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_NO_SCALARS = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
"""Entries of a group that are not inputs of a step. kernel.py records how a step is computed."""
_SCALING = ("grad_scale", "found_inf")


def scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the scalars of each group: learning rate, betas, weight decay and any other entries of the
    program.
    """
    return [
        {key: value for key, value in group.items() if key not in _NO_SCALARS}
        for group in optimizer.param_groups
    ]


def set_scalars(optimizer: torch.optim.Optimizer, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Set the scalars that `scalars` returned."""
    for group, one in zip(optimizer.param_groups, wanted):  # noqa: B905 - `strict` came with Python 3.10
        group.update(one)


def structure(optimizer: torch.optim.Optimizer) -> str:
    """Return a digest of the groups: their number, and the shapes and types of their parameters."""
    rows = [[f"{tuple(one.shape)}{one.dtype}" for one in group["params"]] for group in optimizer.param_groups]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def members(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return what must not change during a chain: the identity of each parameter, and whether it is
    trained.
    """
    return tuple(
        tuple((id(one), one.requires_grad, one.dtype, one.shape) for one in group["params"])
        for group in optimizer.param_groups
    )


def versions(optimizer: torch.optim.Optimizer) -> list[tuple[int, ...]]:
    """Return torch's write counters of each parameter and its state, in the order of the groups."""
    found = []
    for group in optimizer.param_groups:
        for one in group["params"]:
            state = optimizer.state.get(one, {})
            held = [value for value in state.values() if isinstance(value, torch.Tensor)]
            found.append((one._version, *(id(value) for value in held), *(value._version for value in held)))
    return found


def scaling(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the values that a gradient scaler gave to a fused kernel: the factor, and whether the step is
    void.
    """
    return {name: getattr(optimizer, name) for name in _SCALING if hasattr(optimizer, name)}


@contextmanager
def scaled(
    optimizer: torch.optim.Optimizer, marks: Mapping[str, Any], device: torch.device
) -> Iterator[None]:
    """Set the gradient scaler's values on the optimizer for one step."""
    for name, value in marks.items():
        setattr(optimizer, name, value.to(device) if isinstance(value, torch.Tensor) else value)
    try:
        yield
    finally:
        for name in marks:
            delattr(optimizer, name)
