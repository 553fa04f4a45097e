"""Tests of the fused LayerNorm-Modulate: on a CPU, and with Triton on a machine with a GPU."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from convoy_workloads.engines.adaptiveload.layernorm_modulate import (
    layernorm_modulate,
    plain_layernorm_modulate,
    saved_bytes,
)

SHAPES = [(1, 1, 2), (2, 7, 16), (3, 65, 48), (2, 513, 200)]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def inputs(
    shape: tuple[int, int, int], device: str = "cpu", dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    batch, _, size = shape
    torch.manual_seed(0)
    return [
        torch.randn(one, device=device, dtype=dtype).mul_(3).add_(1).requires_grad_()
        for one in (shape, (batch, size), (batch, size))
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_result_and_gradients_are_those_of_the_usual_operations(
    shape: tuple[int, int, int], device: str
) -> None:
    given = inputs(shape, device)
    ours, theirs = layernorm_modulate(*given), plain_layernorm_modulate(*given)
    gradient = torch.randn_like(ours)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(ours, given, gradient)
    expected = torch.autograd.grad(theirs, given, gradient)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.abs().max())))


def test_the_gradients_are_those_of_finite_differences() -> None:
    given = inputs((2, 3, 5), dtype=torch.float64)
    assert torch.autograd.gradcheck(layernorm_modulate, given)


def test_the_fused_operation_keeps_half_the_memory() -> None:
    given = inputs((2, 64, 128))
    sizes = {}
    for operation in (layernorm_modulate, plain_layernorm_modulate):
        with saved_bytes() as count:
            operation(*given)
        sizes[operation] = count()
    activation = given[0].numel() * 4
    assert activation < sizes[layernorm_modulate] < 1.1 * activation
    assert sizes[plain_layernorm_modulate] > 2 * activation


@pytest.mark.parametrize(
    "shapes", [((4, 8), (4, 8), (4, 8)), ((2, 4, 8), (2, 8), (1, 8)), ((2, 4, 8), (2, 4), (2, 4))]
)
def test_other_shapes_are_an_error(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"not \[B, S, D\]"):
        layernorm_modulate(*map(torch.zeros, shapes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU, Triton computes it")
def test_without_a_gpu_triton_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{layernorm_modulate.__module__}_triton"
    # An import of a module that is None fails, also if an earlier test has imported it.
    for one in ("triton", name):
        monkeypatch.setitem(sys.modules, one, None)
    monkeypatch.delattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], raising=False)
    layernorm_modulate(*inputs((1, 2, 3)))
    with pytest.raises(ImportError):
        importlib.import_module(name)
