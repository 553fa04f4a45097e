"""The rules for optimizers whose steps may be replayed. Such an optimizer computes the next state of an
element only from that element's own gradients and state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch.optim import optimizer as torch_hooks

from convoy_workloads.runtime.journal.groups import scalars
from convoy_workloads.runtime.tiers import values

OWN = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
"""The optimizers of torch whose steps may be replayed. Their subclasses are not included."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_OURS = "convoy_workloads."


class Refused(ValueError):
    """Raised for an optimizer whose steps a replay might not reproduce. The message gives the reason."""


def refusal(optimizer: torch.optim.Optimizer, elementwise: Collection[type] = ()) -> str:
    """Return why the steps of `optimizer` cannot be replayed; empty if they can.

    `elementwise`: further optimizer classes that update each element independently, as the caller declares.
    """
    kind = type(optimizer)
    if kind not in OWN and kind not in elementwise:
        return f"{kind.__module__}.{kind.__qualname__} is not known to work element by element"
    # A learning rate scheduler wraps the step method to check that it is called. That wrapper changes no
    # values, so it is allowed.
    if "step" in vars(optimizer) and not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return "its step method is replaced"
    return _group_refusal(optimizer) or _parameter_refusal(optimizer) or hook_refusal(optimizer)


def hook_refusal(optimizer: torch.optim.Optimizer) -> str:
    """Return which hook of the program prevents a replay; empty if no hook does.

    A hook may change parameters or gradients, and a replay cannot repeat the effect of a hook.
    """
    for hook in _hooks(optimizer):
        module = str(getattr(hook, "__module__", type(hook).__module__))
        if not module.startswith(_OURS):
            return f"a step hook of {module} may change what the optimizer works on"
    return ""


def call_refusal(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    """Return why a call of `step` with these arguments cannot be replayed; empty if it can.

    The first argument is the optimizer.
    """
    if any(one is not None for one in args[1:]) or any(one is not None for one in keywords.values()):
        return "step was called with a closure or other arguments"
    return ""


def gradient_refusal(name: str, parameter: torch.Tensor) -> str:
    """Return why the gradient of a parameter cannot be journalled; empty if it can."""
    gradient = parameter.grad
    if gradient is None:
        return ""
    if gradient.layout is not torch.strided:
        return f"the gradient of {name} is sparse"
    if type(gradient) is not torch.Tensor:
        return f"the gradient of {name} is a {type(gradient).__qualname__}"
    if gradient.dtype is not parameter.dtype:
        return f"the gradient of {name} is {gradient.dtype}, the parameter {parameter.dtype}"
    if not dense(tuple(gradient.shape), gradient.stride()):
        return f"the gradient of {name} overlaps itself or has gaps"
    return ""


def dense(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if a tensor of these sizes and strides occupies one block of memory without gaps or
    overlaps.
    """
    expected = 1
    for stride, size in sorted(zip(strides, sizes)):  # noqa: B905 - `strict` came with Python 3.10
        if size == 0:
            return True
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _group_refusal(optimizer: torch.optim.Optimizer) -> str:
    for number, group in enumerate(optimizer.param_groups):
        for flag in ("differentiable", "capturable"):
            if group.get(flag):
                return f"group {number} is {flag}"
        for key, value in group.items():
            parts = value if isinstance(value, (tuple, list)) else (value,)
            if key != "params" and any(isinstance(one, torch.Tensor) for one in parts):
                return f"{key} of group {number} is a tensor"
    try:
        values.dumps(scalars(optimizer))
    except values.UnsavableError as error:
        return str(error)
    return ""


def _parameter_refusal(optimizer: torch.optim.Optimizer) -> str:
    devices = set()
    for number, group in enumerate(optimizer.param_groups):
        for one in group["params"]:
            if type(one) not in (torch.Tensor, torch.nn.Parameter):
                return f"a parameter of group {number} is a {type(one).__qualname__}"
            if one.layout is not torch.strided or one.dtype not in _DTYPES:
                return f"a parameter of group {number} is {one.dtype}, {one.layout}"
            if not dense(tuple(one.shape), one.stride()):
                return f"a parameter of group {number} overlaps itself or has gaps"
            if type(optimizer) is torch.optim.SGD and _has_arbitrary_momentum(group, one):
                return f"group {number}: torch's fused SGD leaves arbitrary momentum in 16 bits on a CPU"
            devices.add(one.device)
    return "its parameters are on several devices" if len(devices) > 1 else ""


def _has_arbitrary_momentum(group: Mapping[str, Any], one: torch.Tensor) -> bool:
    """Return True if torch's fused SGD computes a different momentum each time it repeats the same step.

    With torch 2.13 on a CPU, up to 32 elements at the end of a 16-bit parameter are affected.
    """
    return bool(group["fused"] and group["momentum"] and one.itemsize == 2 and one.device.type == "cpu")


def _hooks(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    yield from chain(
        torch_hooks._global_optimizer_pre_hooks.values(),
        torch_hooks._global_optimizer_post_hooks.values(),
        optimizer._optimizer_step_pre_hooks.values(),
        optimizer._optimizer_step_post_hooks.values(),
    )
