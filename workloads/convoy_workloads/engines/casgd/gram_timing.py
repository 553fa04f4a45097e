"""Times of the Gram matrix from bf16 and from fp32 rows on this machine's GPU, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.optim.precision import FP32, MIXED, Precision, product_into

SHAPES = ((128, 2000), (512, 65_536), (2048, 65_536), (4096, 65_536))
"""Rows of s batches, and columns of a rank."""
ROUNDS, PRODUCTS = 9, 20
PRECISIONS: Mapping[str, Precision] = {"fp32": FP32, "bf16": MIXED}


def figures() -> Figures:
    """Measure, and return the rows."""
    found = Figures()
    card = torch.cuda.get_device_name()
    for rows, columns in SHAPES:
        title = f"casgd, Gram matrix on a GPU, {rows} rows x {columns} columns"
        features = torch.randn(rows, columns, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        times = _times(features)
        for name, values in times.items():
            metric = Metric(f"{title}: {name} rows", "microseconds")
            for one in values:
                found.add(metric, 1e6 * one)
        ratio = Metric(
            f"{title}: times faster from bf16 than from fp32 rows",
            "times",
            spread=f"medians of {ROUNDS} rounds, {card}",
        )
        found.add(ratio, statistics.median(times["fp32"]) / statistics.median(times["bf16"]))
        error = Metric(f"{title}: error from bf16 rows, of the largest element", "ratio", 0.01, spread=card)
        found.add(error, _error(features))
    return found


def _times(features: torch.Tensor) -> dict[str, list[float]]:
    """Return the seconds of a product, by precision of the rows."""
    inputs = {name: features.to(one.gram_input) for name, one in PRECISIONS.items()}
    out = torch.empty(len(features), len(features), device="cuda")
    times: dict[str, list[float]] = {name: [] for name in inputs}
    for number in range(-1, ROUNDS):  # The first round loads the kernels.
        for name, given in inputs.items():
            seconds = _seconds(out, given)
            if number >= 0:
                times[name].append(seconds)
    return times


def _seconds(out: torch.Tensor, given: torch.Tensor) -> float:
    start, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    torch.cuda.synchronize()
    start.record()
    for _ in range(PRODUCTS):
        product_into(out, given, given.t(), torch.float32)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000 / PRODUCTS


def _error(features: torch.Tensor) -> float:
    """Return the largest difference of the Gram matrix from bf16 rows and the exact one from fp32 rows, as
    a part of the largest element.
    """
    out = torch.empty(len(features), len(features), device="cuda")
    given = features.to(torch.bfloat16)
    product_into(out, given, given.t(), torch.float32)
    exact = features.double() @ features.double().t()
    return float((out - exact).abs().max() / exact.abs().max())
