"""The allocation of an optimizer's state before the saved state is loaded into it.

torch.distributed.checkpoint would allocate the state by a step with zero gradients (`_init_optim_state` in
its state_dict.py). For Adam such a step takes several times as long as loading.
"""

from __future__ import annotations

from typing import Any

import torch


def allocate_state(optimizer: torch.optim.Optimizer) -> bool:
    """Allocate the state that an optimizer has before its first step. Do nothing if the optimizer already
    has state. Return True if state was allocated.

    This covers torch's own Adam and AdamW, whose state `Adam._init_group` defines. For other optimizers
    torch allocates the state.
    """
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW) or optimizer.state:
        return False
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                optimizer.state[parameter] = _adam_state(parameter, group)
    return True


def _adam_state(parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, torch.Tensor]:
    narrow = group["fused"] or torch.get_default_dtype() != torch.float64
    names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
    step = torch.zeros(
        (),
        dtype=torch.float32 if narrow else torch.float64,
        device=parameter.device if group["fused"] or group["capturable"] else "cpu",
    )
    moments = (torch.zeros_like(parameter, memory_format=torch.preserve_format).detach() for _ in names)
    return {"step": step, **dict(zip(names, moments, strict=True))}
