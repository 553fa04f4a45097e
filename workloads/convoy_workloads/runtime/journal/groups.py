"""The inputs of an optimizer besides gradients: the scalars of its parameter groups and the values of a
gradient scaler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_NO_SCALARS = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
"""Keys of a parameter group that are not recorded as inputs. Some of these keys choose the kernel, which
kernel.py records.
"""
_SCALING = ("grad_scale", "found_inf")


def scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the scalars of each parameter group: learning rate, betas, weight decay, and other entries
    that the program has added.
    """
    return [
        {key: value for key, value in group.items() if key not in _NO_SCALARS}
        for group in optimizer.param_groups
    ]


def set_scalars(optimizer: torch.optim.Optimizer, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Set the scalars of each parameter group to `wanted`, an earlier result of `scalars`."""
    for group, one in zip(optimizer.param_groups, wanted):  # noqa: B905 - `strict` came with Python 3.10
        group.update(one)


def structure(optimizer: torch.optim.Optimizer) -> str:
    """Return a digest of the parameter groups: their number, and the shapes and types of their parameters."""
    rows = [[f"{tuple(one.shape)}{one.dtype}" for one in group["params"]] for group in optimizer.param_groups]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def members(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return the properties of the optimizer's parameters that must not change during a chain: the
    identity, type and shape of each parameter, and whether it is trained.
    """
    return tuple(
        tuple((id(one), one.requires_grad, one.dtype, one.shape) for one in group["params"])
        for group in optimizer.param_groups
    )


def versions(optimizer: torch.optim.Optimizer) -> list[tuple[int, ...]]:
    """Return torch's write counters of each parameter and of its optimizer state, in the order of the
    parameter groups. Each write to a tensor raises the tensor's counter.
    """
    found = []
    for group in optimizer.param_groups:
        for one in group["params"]:
            state = optimizer.state.get(one, {})
            held = [value for value in state.values() if isinstance(value, torch.Tensor)]
            found.append((one._version, *(id(value) for value in held), *(value._version for value in held)))
    return found


def scaling(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the values that a gradient scaler has given to a fused optimizer.

    They are the scale of the gradients, and a flag that makes the optimizer skip the step.
    """
    return {name: getattr(optimizer, name) for name in _SCALING if hasattr(optimizer, name)}


@contextmanager
def scaled(
    optimizer: torch.optim.Optimizer, marks: Mapping[str, Any], device: torch.device
) -> Iterator[None]:
    """Return a context in which the optimizer has the attributes `marks`: the values that a gradient scaler
    set, as `scaling` returned them.
    """
    for name, value in marks.items():
        setattr(optimizer, name, value.to(device) if isinstance(value, torch.Tensor) else value)
    try:
        yield
    finally:
        for name in marks:
            delattr(optimizer, name)
