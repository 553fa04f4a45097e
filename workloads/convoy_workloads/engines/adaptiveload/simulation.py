"""A calibrated simulation of many ranks: batches as AdaptiveBuckets deals them, with measured times of steps.

The simulation deals the samples as the loader does, and reads the time of each batch from steps that were
measured on this machine. Between two measured sizes of batches, the time grows linearly. A batch beyond the
measured sizes is an error.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convoy_workloads.data.bucket_table import Rule, fit_model, make_table
from convoy_workloads.data.dealing import deal, form_batches, imbalance
from convoy_workloads.data.epoch_order import epoch_order
from convoy_workloads.packing.step_cost import CostModel, Timing


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A rule and a dealing to simulate."""

    rule: Rule
    memory_tokens: int
    compute_tokens: int | None = None
    """The compute limit, as the longest batch of equal tokens: the cost of `compute_tokens` tokens of the
    longest bucket. None: no limit.
    """
    exponent: float | None = None
    sort: bool = False


@dataclass(frozen=True)
class Simulated:
    """The result of an epoch."""

    imbalance: float
    seconds_per_sample: float
    exponent: float
    sizes: Mapping[int, int]


class MeasuredCost:
    """The time of any batch, from measured steps."""

    def __init__(self, timings: Iterable[Timing]) -> None:
        self._points: dict[int, list[tuple[int, float]]] = {}
        for one in timings:
            self._points.setdefault(one.tokens, []).append((one.batch, one.seconds))
        for points in self._points.values():
            points.sort()

    def seconds(self, batch: int, tokens: int) -> float:
        """Return the seconds of a step. Raises ValueError for a batch beyond the measured sizes."""
        points = self._points[tokens]
        if not points[0][0] <= batch <= points[-1][0]:
            sizes = f"{points[0][0]} to {points[-1][0]}"
            raise ValueError(f"{batch} samples of {tokens} tokens: batches of {sizes} samples are measured")
        after = next(at for at, (size, _) in enumerate(points) if size >= batch)
        (size, time), (next_size, next_time) = points[max(0, after - 1)], points[after]
        return time if size == next_size else time + (batch - size) * (next_time - time) / (next_size - size)


def simulate(
    setting: Setting, timings: Sequence[Timing], samples: Sequence[int], world: int, window: int, seed: int
) -> Simulated:
    """Return the result of an epoch over samples of these sizes."""
    buckets, cost = sorted(set(samples)), MeasuredCost(timings)
    model = fit_model(setting.rule, timings, setting.exponent)
    limit = None
    if model is not None and setting.compute_tokens is not None:
        limit = model.seconds(max(1, setting.compute_tokens // buckets[-1]), buckets[-1])
    table = make_table(buckets, setting.memory_tokens, model, limit)
    sort_by: CostModel | None = (model or fit_model("measured", timings)) if setting.sort else None
    order, left = epoch_order(len(samples), seed, 0, True), list[int]()
    generator, steps = random.Random(seed), list[list[float]]()  # noqa: S311 - a simulation
    for at in range(0, len(order), window):
        part = [*left, *order[at : at + window]]
        last = at + window >= len(order)
        batches, left = form_batches(part, samples, table, world, last, generator)
        for step in deal(batches, world, sort_by, generator):
            steps.append([cost.seconds(len(one.samples), one.tokens) if one.samples else 0.0 for one in step])
    exponent = getattr(model, "exponent", 0.0)
    total = sum(map(max, steps))
    return Simulated(imbalance(steps), total / len(samples), exponent, table.sizes)
