"""Random choices that all cases share. Values near the limits of the rules are frequent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

RATIOS = (0.0, 0.1, 0.5, 0.89, 0.9, 0.91, 0.95, 0.99, 1.0, 1.01, 1.05, 1.09, 1.1, 1.11, 1.5, 2.0, 3.7, 20.0)
"""Frequent ratios of usage to target: the default tolerance ends at 0.9 and 1.1."""
TOLERANCES = ("0", "50m", "0.1", "100m", "0.15", "0.33", "0.57", "1", "1.5")
LARGE = (2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1)
"""Values at which the arithmetic of Go overflows."""


def chance(rng: Random, probability: float) -> bool:
    """Return True with this probability."""
    return rng.random() < probability


def weighted(rng: Random, weights: Mapping[T, float]) -> T:
    """Return one of the keys, by their weights."""
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


def near(rng: Random, limits: Sequence[float], largest: int) -> float:
    """Return a number of half seconds: at a limit, half a second beside it, or anywhere up to `largest`."""
    if chance(rng, 0.3):
        return rng.randrange(2 * largest) / 2
    return max(0.0, rng.choice(limits) + rng.choice((-0.5, 0.0, 0.0, 0.5)))


def ratio(rng: Random) -> float:
    """Return a ratio of usage to target."""
    return rng.choice(RATIOS) if chance(rng, 0.7) else rng.uniform(0.0, 3.0)


def count(rng: Random) -> int:
    """Return a number of replicas above zero. It is mostly small."""
    return rng.randint(1, 6) if chance(rng, 0.95) else rng.randint(7, 50)


def scaled(full: int, usage: float) -> int:
    """Return `full` times the usage, but at most the largest integer of Go."""
    return min(round(full * usage), LARGE[-1])


def odd_value(rng: Random) -> int:
    """Return a negative value, or one at which Go's arithmetic overflows."""
    return rng.randint(-5000, -1) if chance(rng, 0.5) else rng.choice(LARGE)


def quantity(rng: Random, milli: int) -> str:
    """Return a number of thousandths as one of the texts that mean it."""
    if milli % 1000 or chance(rng, 0.3):
        return f"{milli}m"
    whole = milli // 1000
    return f"{whole // 1000}k" if whole % 1000 == 0 and whole else str(whole)
