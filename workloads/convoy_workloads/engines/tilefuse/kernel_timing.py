"""Times of matrix products: the packed kernels beside PyTorch's, with weights that come from memory.

All contenders of a shape take turns in one process. Each has copies of its weights of more than WEIGHT_BYTES
in all, and uses one copy after another, so that no cache holds them. A round is one pass over all copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from convoy_workloads.engines.tilefuse.packed_linear import LINEAR
from convoy_workloads.kernels.packing import BITS, PackedWeights, aligned, dequantise, pack
from convoy_workloads.kernels.weight_only import Linear

WEIGHT_BYTES = 300_000_000
ROUNDS = 9
GROUP_SIZE = 128
Call = Callable[[], object]


@dataclass(frozen=True)
class Problem:
    """A product: `rows` rows times a matrix of `outputs` x `inputs` weights."""

    outputs: int
    inputs: int
    rows: int

    def __str__(self) -> str:
        return f"{self.outputs} x {self.inputs}, {self.rows} {'row' if self.rows == 1 else 'rows'}"


def random_packed(scheme: str, problem: Problem, seed: int = 0) -> PackedWeights:
    """Return random packed weights. Zero points differ from the middle, and so does the mean of the weights
    from 0.
    """
    random = np.random.default_rng(seed)
    shape, groups = (problem.outputs, problem.inputs), -(-problem.inputs // GROUP_SIZE)
    codes = random.integers(0, 2 ** BITS[scheme], shape, dtype=np.uint8)
    scales = random.uniform(0.001, 0.01, (problem.outputs, groups)).astype(np.float16)
    zeros = random.integers(0, 2 ** BITS[scheme], (problem.outputs, groups), dtype=np.uint8)
    return pack(scheme, codes, scales, zeros, GROUP_SIZE)


def times(problem: Problem, threads: int, rounds: int = ROUNDS) -> Mapping[str, list[float]]:
    """Return the seconds of a product in each round, by contender."""
    torch.set_num_threads(threads)
    x = torch.randn((problem.rows, problem.inputs), generator=torch.Generator().manual_seed(1)).bfloat16()
    contenders = _contenders(problem, x, threads)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    with torch.inference_mode():
        for calls in contenders.values():
            _once(calls)
        for number in range(rounds):
            names = list(contenders)
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                found[name].append(_once(contenders[name]))
    return found


def _once(calls: Sequence[Call]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - start) / len(calls)


def _contenders(problem: Problem, x: Tensor, threads: int) -> dict[str, list[Call]]:
    """Return the calls of each contender, one for each copy of its weights."""
    outputs, inputs = problem.outputs, problem.inputs
    found: dict[str, list[Call]] = {}
    for scheme in BITS:
        packed = random_packed(scheme, problem)
        layers = [_layer(one, threads) for one in _copies(packed)]
        found[scheme] = [lambda layer=layer: layer(x) for layer in layers]  # type: ignore[misc]
    weight = torch.randn((outputs, inputs), dtype=torch.bfloat16)
    found["torch bf16"] = [
        lambda one=one: F.linear(x, one)  # type: ignore[misc]
        for one in _clones(weight)
    ]
    eight, scales = (
        torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8),
        torch.rand(outputs).bfloat16(),
    )
    found["torch int8"] = [
        lambda one=one: torch._weight_int8pack_mm(x, one, scales)  # type: ignore[misc]
        for one in _clones(eight)
    ]
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.int32)
    four = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    grid = torch.rand((inputs // GROUP_SIZE, outputs, 2)).bfloat16()
    found["torch int4"] = [
        lambda one=one: torch.ops.aten._weight_int4pack_mm_for_cpu(x, one, GROUP_SIZE, grid)  # type: ignore[misc]
        for one in _clones(four)
    ]
    return found


def _copies(packed: PackedWeights) -> list[PackedWeights]:
    """Return the weights several times, each in memory of its own."""
    found = [packed]
    for _ in range(math.ceil(WEIGHT_BYTES / packed.tiles.nbytes) - 1):
        tiles = aligned(packed.tiles.nbytes)
        tiles[:] = packed.tiles
        found.append(PackedWeights(packed.scheme, packed.outputs, packed.inputs, packed.group_size, tiles))
    return found


def _clones(weight: Tensor) -> list[Tensor]:
    return [weight.clone() for _ in range(math.ceil(WEIGHT_BYTES / weight.nbytes))]


def _layer(packed: PackedWeights, threads: int) -> Linear:
    return LINEAR[packed.scheme](packed, threads=threads)


def largest_error(scheme: str, problem: Problem) -> float:
    """Return the largest error of a product against the dequantised weights in float64. It is relative to the
    sum of the magnitudes of the result's terms.
    """
    packed = random_packed(scheme, problem, seed=3)
    x = torch.randn((problem.rows, problem.inputs), generator=torch.Generator().manual_seed(3)) + 0.5
    x = x.bfloat16().float()
    found = LINEAR[scheme](packed)(x).double()
    weights = torch.from_numpy(dequantise(packed)).double()
    exact, magnitudes = x.double() @ weights.T, x.double().abs() @ weights.abs().T
    return float(((found - exact).abs() / magnitudes).max())


def differing_threads(scheme: str, problem: Problem, counts: Sequence[int]) -> int:
    """Return how many numbers of threads give other bits than the first."""
    packed = random_packed(scheme, problem, seed=4)
    x = torch.randn((problem.rows, problem.inputs), generator=torch.Generator().manual_seed(4))
    results = [_layer(packed, threads)(x) for threads in counts]
    return sum(not torch.equal(one, results[0]) for one in results[1:])
