"""Tests that remembered names give the state of torch's own functions, whatever the program changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from convoy_workloads.runtime import state_dicts
from convoy_workloads.runtime.state_dicts import StateDicts


class Tied(nn.Module):
    """A model with a tied parameter, a buffer, a buffer that is not saved, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.calls = 0

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.second(self.norm(self.first(data)))  # type: ignore[no-any-return]

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()


def made(compiled: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net: Any = Tied()
    if compiled:
        net.first = torch.compile(net.first, backend="eager")
        net = torch.compile(net, backend="eager")
    bias = [one for name, one in net.named_parameters() if name.endswith("bias")]
    other = [one for name, one in net.named_parameters() if not name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": bias, "weight_decay": 0.0}, {"params": other}])
    step(net, optimizer)
    return net, optimizer


def assert_as_torch(found: dict[str, Any], net: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Compare names, order, values and the identity of the tensors' memory with torch's result."""
    wanted: dict[str, Any] = {"model": dcp.get_model_state_dict(net)}
    if optimizer is not None:
        wanted["optimizer"] = dcp.get_optimizer_state_dict(net, optimizer)
    one, _ = flatten_state_dict(found)
    other, _ = flatten_state_dict(wanted)
    assert list(one) == list(other)
    for name, value in other.items():
        if isinstance(value, torch.Tensor):
            assert one[name].data_ptr() == value.data_ptr() and one[name].shape == value.shape, name
        else:
            assert one[name] == value, name


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each collection by torch."""
    calls: list[int] = []
    real = StateDicts._by_torch

    def counted(own: StateDicts) -> dict[str, Any]:
        calls.append(1)
        return real(own)

    monkeypatch.setattr(state_dicts.StateDicts, "_by_torch", counted)
    return calls


@pytest.mark.parametrize("compiled", [False, True])
def test_torch_collects_only_the_first_state(compiled: bool, by_torch: list[int]) -> None:
    net, optimizer = made(compiled)
    own = StateDicts(net, optimizer)
    for _ in range(3):
        assert_as_torch(own.collect(), net, optimizer)
        step(net, optimizer)
    assert by_torch == [1]


def test_a_model_without_an_optimizer(by_torch: list[int]) -> None:
    net, _ = made()
    own = StateDicts(net)
    for _ in range(2):
        assert_as_torch(own.collect(), net, None)
    assert by_torch == [1]


@pytest.mark.parametrize("gradients", [False, True])
def test_an_optimizer_before_its_first_step_is_not_changed(gradients: bool, by_torch: list[int]) -> None:
    """Torch's own function takes a step, after which Adam corrects its bias as in the second step
    (pytorch#164929).
    """
    net = Tied()
    optimizer = torch.optim.AdamW(net.parameters())
    if gradients:
        net(torch.randn(4, 3)).sum().backward()
    own = StateDicts(net, optimizer)
    for _ in range(2):
        found = own.collect()["optimizer"]
        assert found["state"] == {} and len(found["param_groups"][0]["params"]) == 5
    assert not optimizer.state and by_torch == [1]
    assert all((one.grad is not None) == gradients for one in net.parameters())
    step(net, optimizer)
    assert_as_torch(own.collect(), net, optimizer)


def replace_parameter(net: Any, optimizer: Any) -> None:
    del optimizer.state[net.first.bias]
    net.first.bias = nn.Parameter(torch.ones(3))
    optimizer.param_groups[0]["params"][0] = net.first.bias
    step(net, optimizer)


def swap_parameters(net: Any, optimizer: Any) -> None:
    net.first.bias, net.second.bias = net.second.bias, net.first.bias


def add_a_layer(net: Any, optimizer: Any) -> None:
    net.third = nn.Linear(3, 1)
    optimizer.add_param_group({"params": list(net.third.parameters())})
    step(nn.Sequential(net, net.third), optimizer)


def move_between_groups(net: Any, optimizer: Any) -> None:
    optimizer.param_groups[1]["params"].append(optimizer.param_groups[0]["params"].pop())


def drop_a_buffer(net: Any, optimizer: Any) -> None:
    net.norm.register_buffer("running_mean", None)


CHANGES = [replace_parameter, swap_parameters, add_a_layer, move_between_groups, drop_a_buffer]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_program_is_collected_again(
    change: Callable[[Any, Any], None], by_torch: list[int]
) -> None:
    net, optimizer = made()
    own = StateDicts(net, optimizer)
    own.collect()
    change(net, optimizer)
    assert_as_torch(own.collect(), net, optimizer)
    assert_as_torch(own.collect(), net, optimizer)
    assert by_torch == [1, 1]


def test_new_tensors_of_the_same_names_are_collected() -> None:
    """A program may replace a buffer, or the optimizer's state, by another tensor of the same name."""
    net, optimizer = made()
    own = StateDicts(net, optimizer)
    own.collect()
    net.norm.running_mean = torch.full((3,), 5.0)  # type: ignore[union-attr]
    optimizer.load_state_dict(optimizer.state_dict())
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].clone()
    optimizer.param_groups[0]["lr"] = 0.5
    assert_as_torch(own.collect(), net, optimizer)


def test_a_model_that_computes_its_state_is_always_collected_by_torch(by_torch: list[int]) -> None:
    net, optimizer = made()
    net._register_state_dict_hook(lambda _, state, *__: state.update(scaled=torch.ones(1)))
    own = StateDicts(net, optimizer)
    for _ in range(2):
        own.collect()
    assert by_torch == [1, 1]


class Wrapper(torch.Tensor):
    """A tensor that wraps another one and has no memory of its own, as quantised weights do."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        own: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        own.inner = inner
        return own

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*(one.inner if isinstance(one, Wrapper) else one for one in args), **(kwargs or {}))
        return Wrapper(result) if func is torch.ops.aten.detach.default else result


class Parts(nn.Module):
    """Two equal parts, of which only the first is compiled. Torch moves its names behind all others."""

    def __init__(self, values: Callable[[float], torch.Tensor]) -> None:
        super().__init__()
        first: Any = nn.Module()
        self.second: Any = nn.Module()
        first.register_buffer("value", values(1.0))
        self.second.register_buffer("value", values(2.0))
        self.first = torch.compile(first, backend="eager")


def test_a_model_that_is_compiled_in_part(by_torch: list[int]) -> None:
    net = Parts(lambda value: torch.full((2,), value))
    own = StateDicts(net)
    for _ in range(2):
        assert_as_torch(own.collect(), net, None)
    assert by_torch == [1]


def test_values_without_own_memory_keep_their_names() -> None:
    own = StateDicts(Parts(lambda value: Wrapper(torch.full((2,), value))))
    for _ in range(2):
        found = {name: one.inner.tolist() for name, one in own.collect()["model"].items()}
        assert found == {"first.value": [1.0, 1.0], "second.value": [2.0, 2.0]}


def test_a_model_with_several_optimizers() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizers = [torch.optim.AdamW(net[0].parameters()), torch.optim.AdamW(net[1].parameters())]
    net(torch.ones(1, 3)).sum().backward()
    for one in optimizers:
        one.step()
    own = StateDicts(net, optimizers)
    for _ in range(2):
        assert set(own.collect()["optimizer"]["state"]) == {name for name, _ in net.named_parameters()}
