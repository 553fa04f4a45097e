"""The choice of s from measured costs.

An iteration with one all-reduce for s iterations costs, beside what does not depend on s,

    alpha / s + beta * bytes(s) / s + gamma * products(s) / s

The latency alpha falls with s; bytes and products of the Gram matrix grow with s. So there is a best s.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives
from convoy_workloads.comm.triangle import BlockTriangle
from convoy_workloads.optim.gram import gram_into
from convoy_workloads.optim.precision import Precision, product_into

CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
REPEATS = 15
PROBE_BLOCK = 8
"""Number of batches in the Gram matrix that is timed."""
PROBE_BYTES = 1 << 18
"""Size of the large message that is timed."""


@dataclass(frozen=True)
class Costs:
    """Measured costs of this job. They are the same on all ranks."""

    alpha: float
    """Seconds of an all-reduce of a few bytes. On a GPU also the seconds to start the operations of a block,
    which do not depend on their size.
    """
    beta: float
    """Further seconds for each byte of an all-reduce."""
    gamma: float
    """Seconds for each product of two numbers in a Gram matrix."""

    def seconds(self, s: int, batch: int, columns: int, itemsize: int) -> float:
        """Return the seconds of one iteration that depend on s. `columns`: of one rank."""
        layout = BlockTriangle([batch] * s)
        size = (layout.elements + layout.rows) * itemsize
        return (self.alpha + self.beta * size + self.gamma * layout.elements * columns) / s

    def best(self, batch: int, columns: int, itemsize: int, most: int = CANDIDATES[-1]) -> int:
        """Return the candidate up to `most` with the least cost; of equal ones the smallest."""
        candidates = [one for one in CANDIDATES if one <= most]
        return min(candidates, key=lambda s: (self.seconds(s, batch, columns, itemsize), s))


def message_bytes(s: int, batch: int, itemsize: int) -> int:
    """Return the bytes of the message for s batches: (s (s - 1) / 2 * batch^2 + s * batch) * itemsize."""
    return (s * (s - 1) // 2 * batch**2 + s * batch) * itemsize


def choose(features: Tensor, batch: int, precision: Precision, collectives: Collectives) -> int:
    """Return the best s for these features. All ranks must call this; all get the same number.

    The calls do not count in the traffic of `collectives`.
    """
    with collectives.uncounted():
        costs = measure(features, batch, precision, collectives)
        columns = round(collectives.mean([float(features.shape[1])])[0])
    return costs.best(batch, columns, precision.communication.itemsize)


def measure(features: Tensor, batch: int, precision: Precision, collectives: Collectives) -> Costs:
    """Measure the costs. All ranks must call this. The result is the mean over the ranks."""
    itemsize = precision.communication.itemsize
    small, large = (
        torch.zeros(max(1, size // itemsize), dtype=precision.communication, device=features.device)
        for size in (itemsize, PROBE_BYTES)
    )
    alpha = _median_seconds(lambda: collectives.all_reduce(small))
    slow = _median_seconds(lambda: collectives.all_reduce(large))
    rows = torch.arange(PROBE_BLOCK * batch, device=features.device) % len(features)
    inputs = features.index_select(0, rows).to(precision.gram_input)
    if features.is_cuda:
        start, gram = _gpu_seconds(features, inputs, batch, precision)
    else:
        start, gram = 0.0, _product_seconds(inputs, batch, precision)
    found = [alpha + start, max(0.0, slow - alpha) / PROBE_BYTES, gram / features.shape[1]]
    return Costs(*collectives.mean(found))


def _product_seconds(inputs: Tensor, batch: int, precision: Precision) -> float:
    """Return the seconds of an element of the Gram matrix on a processor, from one batch and those before."""
    out = torch.empty(batch, len(inputs) - batch, dtype=precision.communication)
    found = _median_seconds(
        lambda: product_into(out, inputs[-batch:], inputs[:-batch].t(), precision.gram_accumulation)
    )
    return found / out.numel()


def _gpu_seconds(features: Tensor, inputs: Tensor, batch: int, precision: Precision) -> tuple[float, float]:
    """Return the seconds to start the operations of a block, and those of an element of the Gram matrix.

    One row through the operations of a block gives the former. The difference of two Gram matrices gives the
    latter, so that it has no time to start.
    """
    row, weights = torch.zeros(1, dtype=torch.long), torch.zeros_like(features[0], dtype=precision.weight)

    def start() -> None:
        given = features.index_select(0, row.to(features.device)).to(precision.weight)
        margins = torch.mv(given, weights).cpu()
        weights.sub_(torch.mv(given.t(), margins.to(features.device)))

    seconds, elements = [], []
    for number in (2, PROBE_BLOCK):
        layout = BlockTriangle([batch] * number)
        flat = torch.empty(layout.elements, dtype=precision.communication, device=features.device)
        given = inputs[: layout.rows]
        seconds.append(_median_seconds(_gram(flat, given, layout, precision)))
        elements.append(layout.elements)
    gram = max(0.0, seconds[1] - seconds[0]) / (elements[1] - elements[0])
    return _median_seconds(start) + seconds[0], gram


def _gram(flat: Tensor, inputs: Tensor, layout: BlockTriangle, precision: Precision) -> Callable[[], None]:
    return lambda: gram_into(flat, inputs, layout, precision.gram_accumulation)


def _median_seconds(call: Callable[[], None]) -> float:
    call()
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
