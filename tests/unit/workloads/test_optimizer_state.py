"""Tests that the allocated state of an optimizer equals the state that torch would have created."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from convoy_workloads.runtime.optimizer_state import allocate_state

WAYS = [
    (torch.optim.AdamW, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.AdamW, {"foreach": True}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {}),
    (torch.optim.Adagrad, {}),
]


def model(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(dtype)
    made[0].bias.requires_grad = False
    return made


def without_values(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state without the values of its tensors. A tensor becomes its shape, type, device and
    strides.
    """
    return {
        name: {
            key: (one.shape, one.dtype, one.device, one.stride()) if isinstance(one, torch.Tensor) else one
            for key, one in entries.items()
        }
        for name, entries in state["state"].items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("optimizer", "options"), WAYS)
def test_allocated_state_has_the_entries_that_torch_creates(
    optimizer: type[torch.optim.Optimizer], options: dict[str, Any], dtype: torch.dtype
) -> None:
    wanted, found = model(dtype), model(dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype is not torch.bfloat16 else before)
    try:
        by_torch = get_optimizer_state_dict(wanted, optimizer(wanted.parameters(), **options))  # type: ignore[call-arg]
        ours = optimizer(found.parameters(), **options)  # type: ignore[call-arg]
        allocate_state(ours)
        assert without_values(get_optimizer_state_dict(found, ours)) == without_values(by_torch)
    finally:
        torch.set_default_dtype(before)


def test_state_for_adam_is_allocated_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    optimizer = torch.optim.AdamW(made.parameters())

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a step")

    monkeypatch.setattr(torch.optim.AdamW, "step", refused)
    allocate_state(optimizer)
    get_optimizer_state_dict(made, optimizer)


def test_existing_state_is_not_changed() -> None:
    made = model()
    optimizer = torch.optim.AdamW(made.parameters())
    made(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    before = {one: dict(state) for one, state in optimizer.state.items()}
    allocate_state(optimizer)
    assert all(
        optimizer.state[one][key] is value for one, state in before.items() for key, value in state.items()
    )
