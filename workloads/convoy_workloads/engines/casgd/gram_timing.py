"""Times of the Gram matrix from bf16 and from fp32 rows on this machine's GPU, in turns.

*fp32* uses the GPU's units for fp32, as PyTorch does by default. *tf32* lets the matrix units round each fp32
number to 10 bits of mantissa.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.optim.precision import product_into

SHAPES = ((128, 2000), (512, 65_536), (2048, 65_536), (4096, 65_536))
"""Rows of s batches, and columns of a rank."""
ROUNDS, PRODUCTS = 9, 20
ARMS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""Types of the rows."""


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
        for other in ("fp32", "tf32"):
            name = f"{title}: times faster from bf16 than from {other} rows"
            ratio = Metric(name, "times", higher_is_better=True, spread=f"medians of {ROUNDS} rounds, {card}")
            found.add(ratio, statistics.median(times[other]) / statistics.median(times["bf16"]))
        exact = features.double() @ features.double().t()
        for name in ("tf32", "bf16"):
            error = Metric(
                f"{title}: error from {name} rows, of the largest element", "ratio", 0.01, spread=card
            )
            found.add(error, _error(features, name, exact))
    return found


def _times(features: torch.Tensor) -> dict[str, list[float]]:
    """Return the seconds of a product, by arm."""
    inputs = {name: features.to(one) for name, one in ARMS.items()}
    out = torch.empty(len(features), len(features), device="cuda")
    times: dict[str, list[float]] = {name: [] for name in ARMS}
    for number in range(-1, ROUNDS):  # The first round loads the kernels.
        for name, given in inputs.items():
            with _rounding(name):
                seconds = _seconds(out, given)
            if number >= 0:
                times[name].append(seconds)
    return times


@contextmanager
def _rounding(name: str) -> Iterator[None]:
    """Let the matrix units round fp32 numbers in this context if the arm is tf32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


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


def _error(features: torch.Tensor, name: str, exact: torch.Tensor) -> float:
    """Return the largest difference of an arm's Gram matrix from the exact one, as a part of the largest
    element.
    """
    out = torch.empty(len(features), len(features), device="cuda")
    given = features.to(ARMS[name])
    with _rounding(name):
        product_into(out, given, given.t(), torch.float32)
    return float((out - exact).abs().max() / exact.abs().max())
