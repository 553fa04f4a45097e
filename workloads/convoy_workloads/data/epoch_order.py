"""The order of an epoch's samples, and the share of each rank.

A rank's share is every world-th sample of the order, so the shares of two ranks differ by at most one
sample and no sample is repeated or left out. If the number of ranks changes in the middle of an epoch, the
samples that were not used yet are shared anew (`Reshare`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Reshare:
    """The state of all ranks when an epoch was left by `len(read)` ranks."""

    read: tuple[int, ...]
    """Number of samples that each rank had read."""
    unused: tuple[int, ...]
    """The samples that ranks had read but not used yet, in the order of their numbers."""


def epoch_order(count: int, seed: int, epoch: int, shuffle: bool) -> list[int]:
    """Return the samples of an epoch in order. The order depends only on the arguments."""
    if not shuffle:
        return list(range(count))
    order: list[int] = np.random.default_rng((seed, epoch)).permutation(count).tolist()
    return order


def share(order: Sequence[int], rank: int, world: int) -> Sequence[int]:
    """Return a rank's share of the samples."""
    return order[rank::world]


def remaining(order: Sequence[int], reshares: Iterable[Reshare]) -> list[int]:
    """Return the samples of an epoch that are left after each of the reshares, in the order of the epoch."""
    left = list(order)
    for one in reshares:
        world, unused = len(one.read), set(one.unused)
        left = [
            sample
            for place, sample in enumerate(left)
            if sample in unused or place // world >= one.read[place % world]
        ]
    return left
