"""Prefix LoRA on the modules that users have: checkpointed, shared, low-precision and wrapped ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.workloads.federated.test_prefix_lora import INPUTS, LEVELS, PeftLayer, model
from torch import Tensor, nn

from convoy_workloads.federated.adapters import PrefixLoRA
from convoy_workloads.federated.lora_layers import LoRALinear


class _Checkpoint(torch.autograd.Function):
    """torch.utils.checkpoint with use_reentrant, whose own import takes seconds."""

    @staticmethod
    def forward(ctx: Any, module: nn.Module, x: Tensor) -> Tensor:
        ctx.module, ctx.given = module, x.detach().requires_grad_(True)
        out: Tensor = module(x)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None]:
        with torch.enable_grad():
            out = ctx.module(ctx.given)
        torch.autograd.backward(out, gradient)
        return None, ctx.given.grad


class Checkpointed(nn.Module):
    """A module that keeps no activations: the backward pass runs the forward pass again."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.inner, self._again = model(), again

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        if self._again:
            return _Checkpoint.apply(self.inner, x)  # type: ignore[no-any-return, no-untyped-call]
        out: Tensor = self.inner(x)
        return out


def set_adapters(client: PrefixLoRA) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for one in client.parameters():
            one.copy_(torch.randn(one.shape, generator=generator))


def nested_gradients(again: bool) -> list[Tensor]:
    module = Checkpointed(again)
    client = PrefixLoRA(module, 8, LEVELS)
    set_adapters(client)
    given = torch.linspace(-1, 1, 3 * INPUTS).reshape(3, INPUTS)
    client.nested(lambda: module(given).square().mean()).backward()  # type: ignore[no-untyped-call]
    full = module(given)
    with client.truncated(8):
        assert torch.equal(module(given), full), "the backward pass must leave no limit"
    return [one.grad for one in client.parameters() if one.grad is not None]


def test_activation_checkpointing_does_not_change_the_nested_gradient() -> None:
    for one, other in zip(nested_gradients(True), nested_gradients(False), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_failed_backward_pass_leaves_no_limit() -> None:
    module = model()
    client = PrefixLoRA(module, 8, LEVELS)
    set_adapters(client)
    given = torch.ones(2, INPUTS)
    full = module(given)

    def fail(_gradient: Tensor) -> None:
        raise OSError("no memory")

    def loss() -> Tensor:
        out: Tensor = module(given)
        out.register_hook(fail)  # type: ignore[no-untyped-call]
        return out.sum()

    with pytest.raises(OSError, match="no memory"):
        client.nested(loss).backward()  # type: ignore[no-untyped-call]
    assert torch.equal(module(given), full)


def test_a_client_of_each_round_uses_the_adapters_that_the_module_has() -> None:
    module = model()
    first = PrefixLoRA(module, 4, LEVELS)
    set_adapters(first)
    second = PrefixLoRA(module, 4, LEVELS)
    assert second.factors().keys() == {"0", "2"}
    assert [id(one) for one in first.parameters()] == [id(one) for one in second.parameters()]
    with pytest.raises(ValueError, match="rank: 8, but the adapter of 0 has rank 4"):
        PrefixLoRA(module, 8, LEVELS)


def test_a_layer_in_two_places_has_one_adapter_in_both() -> None:
    module = nn.ModuleDict({"a": nn.Linear(4, 4)})
    module["b"] = module["a"]
    client = PrefixLoRA(module, 2, LEVELS)
    assert list(client.factors()) == ["a"]
    assert isinstance(module["a"], LoRALinear) and module["b"] is module["a"]


def test_a_base_in_bf16_keeps_its_type_and_its_adapter_is_fp32() -> None:
    module = model().bfloat16()
    client = PrefixLoRA(module, 4, LEVELS)
    out = module(torch.ones(2, INPUTS, dtype=torch.bfloat16))
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert {one.dtype for one in client.parameters()} == {torch.float32}


def test_attention_of_pytorch_trains_and_evaluates() -> None:
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    client = PrefixLoRA(module, 2, LEVELS)
    assert client.factors().keys() == {"linear1", "linear2"}
    module(torch.ones(1, 3, 8)).sum().backward()
    assert all(one.grad is not None for one in client.parameters())
    with torch.no_grad():
        assert module.eval()(torch.ones(1, 3, 8)).shape == (1, 3, 8)
    with pytest.raises(ValueError, match=r"self_attn\.out_proj is of a MultiheadAttention"):
        PrefixLoRA(nn.TransformerEncoderLayer(8, 2, 16), 2, LEVELS, targets=("linear1", "out_proj"))


def test_targets_are_whole_parts_of_names_and_each_must_exist() -> None:
    module = nn.ModuleDict({"fc": nn.Linear(2, 2), "not_fc": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match="no linear layer of the module ends in q_proj"):
        PrefixLoRA(module, 2, LEVELS, targets=("fc", "q_proj"))
    assert PrefixLoRA(model(), 2, LEVELS, targets=("2",)).factors().keys() == {"2"}


def adapted(**changed: Any) -> nn.Sequential:
    """Return a module as the package peft prepares it: A, B and other parameters are trained."""
    module = model().requires_grad_(False)
    layer = PeftLayer(module[0], 4)  # type: ignore[arg-type]
    for name, value in changed.items():
        setattr(layer, name, value)
    module[0] = layer
    return module


class Config:
    init_lora_weights = "pissa_niter_4"


@pytest.mark.parametrize(
    ("module", "adapter", "message"),
    [
        (adapted(), "server", "adapter: 0 has no 'server', but default"),
        (adapted(active_adapters=["other"]), "default", "must be the only active one of 0"),
        (adapted(merged=True), "default", "enabled and not merged"),
        (adapted(disable_adapters=True), "default", "enabled and not merged"),
        (adapted(score=nn.Linear(2, 2)), "default", r"peft also trains 0\.score\.bias, 0\.score\.weight"),
        (nn.Linear(4, 4), "default", "single layer cannot be replaced"),
        (nn.DataParallel(model()), "default", "DataParallel cannot get adapters: pass the module in it"),
        (nn.Sequential(nn.Tanh()), "default", "no linear layer that can get an adapter"),
    ],
)
def test_modules_that_cannot_be_trained_as_prefixes_are_errors(
    module: nn.Module, adapter: str, message: str
) -> None:
    trained = [one.requires_grad for one in module.parameters()]
    with pytest.raises(ValueError, match=message):
        PrefixLoRA(module, 4, LEVELS, adapter=adapter)
    assert [one.requires_grad for one in module.parameters()] == trained


def test_a_start_that_changes_the_base_weights_is_an_error() -> None:
    module = adapted()
    PrefixLoRA(module, 4, LEVELS)
    module.peft_config = {"default": Config()}  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'pissa_niter_4' changes the base weights"):
        PrefixLoRA(module, 4, LEVELS)
