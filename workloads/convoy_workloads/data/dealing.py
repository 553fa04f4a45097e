"""The dealing of bucketed batches to ranks.

All ranks know the bucket of each sample, so they compute the same plan without messages. A window is a part
of the epoch's order. Its samples, and those left of the window before, form full batches. The batches of a
step go to the ranks: by random, or sorted by cost, so that the ranks of a step get batches of like cost.
Every sample is used once in an epoch, so the mix of long and short samples does not depend on the table.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from convoy_workloads.data.bucket_table import BucketTable
from convoy_workloads.packing.step_cost import CostModel

Dealing = Literal["none", "window_sorted"]


@dataclass(frozen=True, slots=True)
class DealtBatch:
    """A batch of one bucket. A filler has no samples."""

    tokens: int
    samples: tuple[int, ...]


Step = tuple[DealtBatch, ...]
"""A batch for each rank."""


def form_batches(
    samples: Sequence[int],
    buckets: Sequence[int],
    table: BucketTable,
    world: int,
    last: bool,
    generator: random.Random,
) -> tuple[list[DealtBatch], list[int]]:
    """Return the batches of a window, as many as the ranks can share, and the samples that are left for the
    next window.

    `buckets`: tokens of each sample, by its number. `last`: True at the end of the epoch; then incomplete
    batches are used too, and large batches are divided until there is one for each rank.
    """
    waiting: dict[int, list[int]] = {}
    full: list[DealtBatch] = []
    for sample in samples:
        tokens = buckets[sample]
        group = waiting.setdefault(tokens, [])
        group.append(sample)
        if len(group) >= table.sizes[tokens]:
            full.append(DealtBatch(tokens, tuple(waiting.pop(tokens))))
    if last:
        full += [DealtBatch(tokens, tuple(group)) for tokens, group in sorted(waiting.items())]
        waiting = {}
        full = _divided(full, world)
    generator.shuffle(full)
    used = len(full) - len(full) % world
    left = [sample for group in waiting.values() for sample in group]
    left += [sample for batch in full[used:] for sample in batch.samples]
    return full[:used], left


def deal(
    batches: Sequence[DealtBatch], world: int, sort_by: CostModel | None, generator: random.Random
) -> list[Step]:
    """Return the steps of a window, in random order. `sort_by`: model of the cost by which the batches are
    sorted before each step gets the next `world` batches; None to deal them as they come.
    """
    listed = list(batches)
    if sort_by is not None:
        listed.sort(key=lambda one: sort_by.seconds(len(one.samples), one.tokens))
    steps = [tuple(listed[at : at + world]) for at in range(0, len(listed), world)]
    generator.shuffle(steps)
    return steps


def _divided(batches: list[DealtBatch], world: int) -> list[DealtBatch]:
    """Divide the batches with the most tokens until there is one for each rank. If there are too few
    samples, fillers are added.
    """
    found = list(batches)
    while len(found) % world:
        at = max(range(len(found)), key=lambda one: (len(found[one].samples) > 1, _size(found[one])))
        largest = found[at]
        if len(largest.samples) < 2:
            found.append(DealtBatch(min(one.tokens for one in found), ()))
            continue
        middle = len(largest.samples) // 2
        found[at] = DealtBatch(largest.tokens, largest.samples[:middle])
        found.append(DealtBatch(largest.tokens, largest.samples[middle:]))
    return found


def _size(batch: DealtBatch) -> int:
    return batch.tokens * len(batch.samples)


def imbalance(seconds: Sequence[Sequence[float]]) -> float:
    """Return the mean over the steps of 1 - mean/max of the ranks' times. It is the share of their time that
    ranks wait for the slowest.
    """
    shares = [1 - sum(step) / len(step) / max(step) for step in seconds if step and max(step) > 0]
    return sum(shares) / len(shares) if shares else 0.0
