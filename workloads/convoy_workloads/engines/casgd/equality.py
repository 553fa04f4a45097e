"""CA-SGD in fp64 beside `torch.optim.SGD`, for every s: the weights, and what the collectives count.

SGD computes with all columns in one process and with PyTorch's own derivatives. CA-SGD runs on the ranks of
the process group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convoy_workloads.comm.collectives import of_group
from convoy_workloads.engines.casgd.data import Problem, batch, columns_of, synth
from convoy_workloads.optim.block_size import message_bytes
from convoy_workloads.optim.casgd import CASGD, MAX_BLOCK, CASGDOptions
from convoy_workloads.optim.losses import LOSSES, LossName
from convoy_workloads.optim.precision import FP64

ROWS, COLUMNS, BATCH, ITERATIONS, LR, L2 = 256, 40, 4, 300, 0.02, 0.1
LIMIT = 1e-12
"""Largest difference of a weight that counts as equal."""
EVERY = range(1, MAX_BLOCK + 1)


def compare(loss: LossName, blocks: range = EVERY, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Train with each s on the ranks of the default process group. All ranks must call this.

    Return for each s the largest `difference` of a weight from SGD's, and the `excess` of the all-reduces
    over T / s, rounded up, and of their bytes over the formula.
    """
    problem = synth(loss, ROWS, COLUMNS - 1, seed=1)
    batches = [batch(1, iteration, ROWS, BATCH) for iteration in range(iterations)]
    expected = sgd(problem, loss, batches)
    found: dict[str, Any] = {"difference": [], "excess": [], "excess_bytes": []}
    for s in blocks:
        training, check = of_group(), of_group()
        own = columns_of(training.rank, training.world, COLUMNS, "striped")
        options = CASGDOptions(loss=loss, lr=LR, l2=L2, batch=BATCH, s=s, precision=FP64)
        optimizer = CASGD(problem.features[:, own], problem.targets, options, collectives=training)
        for rows in batches:
            optimizer.step(rows)
        weights = torch.zeros_like(expected)
        weights[own] = optimizer.weights
        check.all_reduce(weights)
        calls, size = expected_traffic(s, iterations)
        found["difference"].append(float((weights - expected).abs().max()))
        found["excess"].append(training.traffic.calls - calls)
        found["excess_bytes"].append(training.traffic.payload_bytes - size)
    return found


def expected_traffic(s: int, iterations: int, batch: int = BATCH, itemsize: int = 8) -> tuple[int, int]:
    """Return the all-reduces of a training, T / s rounded up, and the bytes of their messages."""
    full, rest = divmod(iterations, s)
    size = full * message_bytes(s, batch, itemsize) + (message_bytes(rest, batch, itemsize) if rest else 0)
    return full + bool(rest), size


def sgd(problem: Problem, loss: LossName, batches: list[Tensor]) -> Tensor:
    """Return the weights of `torch.optim.SGD` with all columns."""
    weights = torch.zeros(problem.features.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=LR, weight_decay=L2)
    for rows in batches:
        optimizer.zero_grad()
        value = LOSSES[loss].value(problem.features[rows] @ weights, problem.targets[rows]).mean()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weights.detach()


def local_sgd_difference(loss: LossName, s: int) -> float:
    """Return the largest difference from SGD of a method that is not SGD: two ranks with half of each batch,
    whose weights are averaged after every s iterations. It is the negative control.
    """
    problem = synth(loss, ROWS, COLUMNS - 1, seed=1)
    batches = [batch(1, iteration, ROWS, BATCH) for iteration in range(ITERATIONS)]
    expected = sgd(problem, loss, batches)
    halves = [torch.zeros_like(expected) for _ in range(2)]
    for number, rows in enumerate(batches, 1):
        for rank, weights in enumerate(halves):
            mine = rows[rank::2]
            features = problem.features[mine]
            derivative = LOSSES[loss].derivative(features @ weights, problem.targets[mine])
            weights.mul_(1 - LR * L2).sub_(features.t() @ derivative, alpha=LR / len(mine))
        if number % s == 0:
            halves = [torch.stack(halves).mean(0) for _ in halves]
    return float((torch.stack(halves).mean(0) - expected).abs().max())
