"""Times of SGD and CA-SGD on this machine's GPU, by one rank that calls no all-reduce.

So this is not the publication's comparison, in which all-reduces cost most of the time. It shows what an
iteration costs beside them, and what CA-SGD gains because it starts fewer operations of the GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.casgd.ablation import TOLERANCE
from convoy_workloads.engines.casgd.data import batch
from convoy_workloads.optim.casgd import CASGD, CASGDOptions
from convoy_workloads.optim.precision import PRESETS

COLUMNS = (2000, 65_536)
ROWS, BATCH, LR = 4096, 16, 0.01
ITERATIONS, ROUNDS = 256, 5
PLAIN, SGD = "a plain loop of torch, fp32", "SGD (s = 1), fp32"
VARIANTS: Mapping[str, Any] = {
    SGD: (1, "fp32"),
    "s = 8, fp32": (8, "fp32"),
    "s = 16, fp32": (16, "fp32"),
    "s = 64, fp32": (64, "fp32"),
    "s auto, fp32": ("auto", "fp32"),
    "SGD (s = 1), mixed": (1, "mixed"),
    "s = 16, mixed": (16, "mixed"),
    "s = 64, mixed": (64, "mixed"),
    "s auto, mixed": ("auto", "mixed"),
}


def figures() -> Figures:
    """Measure, and return the rows."""
    found = Figures()
    for columns in COLUMNS:
        _add(found, columns)
    return found


def _add(found: Figures, columns: int) -> None:
    card = torch.cuda.get_device_name()
    title = f"casgd, one rank on a GPU without all-reduces, {BATCH} x {columns}"
    generator = torch.Generator("cuda").manual_seed(0)
    features = torch.randn(ROWS, columns, device="cuda", generator=generator)
    targets = (features[:, 0] > 0).float()
    batches = [batch(1, number, ROWS, BATCH) for number in range(ITERATIONS)]
    arms: dict[str, Callable[[], tuple[float, float]]] = {PLAIN: lambda: _plain(features, targets, batches)}
    for name, (s, preset) in VARIANTS.items():
        options = CASGDOptions(loss="logistic", lr=LR, batch=BATCH, s=s, precision=PRESETS[preset])
        optimizer = CASGD(features, targets, options)
        arms[f"{name}{f' (s = {optimizer.s})' if s == 'auto' else ''}"] = _trainer(optimizer, batches)
    times: dict[str, list[float]] = {name: [] for name in arms}
    losses: dict[str, float] = {}
    for number in range(-1, ROUNDS):  # The first round loads the kernels.
        for name, arm in arms.items():
            seconds, losses[name] = arm()
            if number >= 0:
                times[name].append(seconds / ITERATIONS)
    for name, values in times.items():
        for one in values:
            found.add(Metric(f"{title}: an iteration, {name}", "microseconds"), 1e6 * one)
    for name, values in times.items():
        spread = f"medians of {ROUNDS} rounds, {card}"
        for other in (SGD, PLAIN):
            if name not in {other, PLAIN}:
                metric = Metric(
                    f"{title}: {name}, times faster than {other}",
                    "times",
                    higher_is_better=True,
                    spread=spread,
                )
                found.add(metric, statistics.median(times[other]) / statistics.median(values))
    worst = max(abs(one / losses[PLAIN] - 1) for one in losses.values())
    name = f"{title}: largest difference of the loss from {PLAIN}"
    found.add(Metric(name, "ratio", TOLERANCE, spread=card), worst)


def _trainer(optimizer: CASGD, batches: list[Tensor]) -> Callable[[], tuple[float, float]]:
    """Return a function that trains from zero, and returns the seconds and the loss over all rows."""

    def train() -> tuple[float, float]:
        optimizer.weights.zero_()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for rows in batches:
            optimizer.step(rows)
        optimizer.flush()
        torch.cuda.synchronize()
        return time.perf_counter() - began, optimizer.loss()

    return train


def _plain(features: Tensor, targets: Tensor, batches: list[Tensor]) -> tuple[float, float]:
    """Train by SGD with the operations of torch, and no check of any input."""
    weights = torch.zeros(features.shape[1], device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    for rows in batches:
        here = rows.to("cuda")
        given = features.index_select(0, here)
        derivative = torch.sigmoid(given @ weights) - targets.index_select(0, here)
        weights.addmv_(given.t(), derivative, alpha=-LR / len(rows))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    margins = (features @ weights).double()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(margins, targets.double())
    return seconds, float(loss)
