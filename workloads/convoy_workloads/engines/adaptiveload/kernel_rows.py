"""The rows of the fused LayerNorm-Modulate: memory and errors on a CPU, times on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.adaptiveload.layernorm_modulate import (
    layernorm_modulate,
    plain_layernorm_modulate,
    saved_bytes,
)


def add_cpu_rows(found: Figures) -> None:
    """Add the rows of the fused LayerNorm-Modulate on this CPU: memory for the backward pass, and errors."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 1024, 256), (4, 256), (4, 256))
    given = [torch.randn(one, generator=generator).requires_grad_() for one in shapes]
    sizes = {}
    for name, operation in (("usual", plain_layernorm_modulate), ("fused", layernorm_modulate)):
        with saved_bytes() as count:
            operation(*given)
        sizes[name] = count()
        metric = Metric(f"adaptiveload, LayerNorm-Modulate on a CPU: bytes kept, {name}", "bytes")
        found.add(metric, sizes[name])
    share = Metric("adaptiveload, LayerNorm-Modulate on a CPU: bytes kept, fused over usual", "ratio", 0.6)
    found.add(share, sizes["fused"] / sizes["usual"])
    ours, theirs = layernorm_modulate(*given), plain_layernorm_modulate(*given)
    gradient = torch.randn(ours.shape, generator=generator)
    pairs = [(ours, theirs)]
    pairs += list(
        zip(
            torch.autograd.grad(ours, given, gradient),
            torch.autograd.grad(theirs, given, gradient),
            strict=True,
        )
    )
    worst = max(
        float((one - other).detach().abs().max() / other.detach().abs().max()) for one, other in pairs
    )
    metric = Metric("adaptiveload, LayerNorm-Modulate on a CPU: largest relative error", "ratio", 1e-5)
    found.add(metric, worst)


def kernel_figures(results: Mapping[str, Any]) -> Figures:
    """Return the rows of the Triton kernels, from the result of kernel_timing.py on a machine with a GPU."""
    found = Figures()
    for row in results["rows"]:
        batch, length, size = row["shape"]
        title = f"adaptiveload, LayerNorm-Modulate on a GPU, {batch} x {length} x {size}"
        large = batch * length * size > 10**8
        error = Metric(f"{title}: largest error in fp32", "", 1e-5, spread=results["card"])
        found.add(error, row["error"])
        for name in ("usual", "compiled", "fused"):
            low, high = (1e6 * one for one in row[f"{name} spread"])
            spread = f"{low:.0f} to {high:.0f}"
            metric = Metric(f"{title}: forward and backward, {name}", "microseconds", spread=spread)
            found.add(metric, 1e6 * row[f"{name} seconds"])
            found.add(Metric(f"{title}: peak memory, {name}", "bytes"), row[f"{name} peak bytes"])
        for name in ("usual", "compiled"):
            target = 1.5 if large and name == "usual" else None
            metric = Metric(
                f"{title}: times faster than {name}",
                "times",
                target,
                higher_is_better=True,
                spread=f"medians of 9 rounds, {results['card']}",
            )
            found.add(metric, row[f"{name} seconds"] / row["fused seconds"])
    return found
