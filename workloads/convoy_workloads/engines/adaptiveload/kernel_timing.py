"""Times and memory of the fused LayerNorm-Modulate and of the usual operations, on this machine's GPU.

`python -m convoy_workloads.engines.adaptiveload.kernel_timing RESULT` writes them as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convoy_workloads.engines.adaptiveload.layernorm_modulate import (
    layernorm_modulate,
    plain_layernorm_modulate,
)

SHAPES = ((8, 32_768, 1536), (32, 8192, 1536), (128, 2048, 1536), (16, 8192, 5120), (3, 1000, 200))
"""Sizes B, S and D. The widths 1536 and 5120 are those of the models Wan 2.1 with 1.3 and 14 billion
parameters.
"""
ROUNDS, PASSES = 9, 20
OPERATIONS = {"usual": plain_layernorm_modulate, "fused": layernorm_modulate}


def main() -> None:
    """Measure, and write the result."""
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=2))


def measure() -> dict[str, Any]:
    """Return the times and memory of all shapes, in bf16, and the errors in fp32."""
    rows = [_measure(shape) for shape in SHAPES]
    return {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}


def _measure(shape: tuple[int, int, int]) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": shape, "error": _error(shape)}
    compiled = torch.compile(plain_layernorm_modulate)
    operations = {**OPERATIONS, "compiled": compiled}
    times: dict[str, list[float]] = {name: [] for name in operations}
    for number in range(ROUNDS + 1):
        for name, operation in operations.items():
            seconds, peak = _passes(operation, shape)
            if number:  # the first round compiles
                times[name].append(seconds)
            found[f"{name} peak bytes"] = peak
    for name, values in times.items():
        found[f"{name} seconds"] = statistics.median(values)
        found[f"{name} spread"] = [min(values), max(values)]
    return found


def _inputs(shape: tuple[int, int, int], dtype: torch.dtype) -> list[Tensor]:
    batch, _, size = shape
    torch.manual_seed(0)
    sizes = (shape, (batch, size), (batch, size))
    return [torch.randn(one, device="cuda", dtype=dtype).requires_grad_() for one in sizes]


def _passes(operation: Any, shape: tuple[int, int, int]) -> tuple[float, int]:
    """Return the seconds of a forward and backward pass, and the peak of the memory beyond the inputs."""
    inputs = _inputs(shape, torch.bfloat16)
    gradient = torch.randn_like(inputs[0])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    start.record()
    for _ in range(PASSES):
        torch.autograd.grad(operation(*inputs), inputs, gradient)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / PASSES, torch.cuda.max_memory_allocated() - before


def _error(shape: tuple[int, int, int]) -> float:
    """Return the largest difference, in the result or a gradient in fp32, from the usual operations in fp64.
    Gradients of shift and scale are sums over S, so their difference is divided by the square root of S.
    """
    batch, length, size = min(shape[0], 2), min(shape[1], 4096), shape[2]
    inputs = _inputs((batch, length, size), torch.float32)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    gradient = torch.randn(batch, length, size, device="cuda")
    ours = layernorm_modulate(*inputs)
    theirs = plain_layernorm_modulate(*exact)
    errors = [float((ours - theirs).detach().abs().max())]
    found = torch.autograd.grad(ours, inputs, gradient)
    expected = torch.autograd.grad(theirs, exact, gradient.double())
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        divisor = 1.0 if number == 0 else length**0.5
        errors.append(float((one - other).abs().max()) / divisor)
    return max(errors)


if __name__ == "__main__":
    main()
