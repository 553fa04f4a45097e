"""The canary: it checks that stale weights rank seeds as the trained weights do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_SEEDS = 4
"""Fewest pairs of rewards for a rank correlation."""


@dataclass(frozen=True, slots=True)
class Probe:
    """An explored seed that is sampled again with fresh weights, to compare the rewards."""

    prompt: int
    seed: int
    stale_reward: float


def draw_probes(explored: Sequence[Sequence[Probe]], count: int, random: np.random.Generator) -> list[Probe]:
    """Return about `count` probes: MIN_SEEDS of each of some prompts. `explored`: the seeds of each prompt.

    Rewards of different prompts differ by the difficulty of the prompts, which says nothing about the seeds.
    So each prompt needs enough seeds for ranks of its own. Prompts with equal rewards have no ranks.
    """
    telling = [
        one for one in explored if len(one) >= MIN_SEEDS and len({two.stale_reward for two in one}) > 1
    ]
    prompts = random.permutation(len(telling))[: -(-count // MIN_SEEDS)]
    return [telling[prompt][seed] for prompt in prompts for seed in _some(len(telling[prompt]), random)]


def _some(count: int, random: np.random.Generator) -> Sequence[int]:
    return [int(one) for one in random.permutation(count)[:MIN_SEEDS]]


def mean_spearman(prompts: Iterable[Sequence[tuple[float, float]]]) -> float | None:
    """Return the mean of the prompts' rank correlations; None if no prompt has one. `prompts`: the pairs of
    rewards of each prompt's seeds.
    """
    found = [spearman([one for one, _ in pairs], [two for _, two in pairs]) for pairs in prompts]
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the rank correlation; None for too few pairs, or if all values of one side are equal."""
    if len(first) < MIN_SEEDS:
        return None
    ranks = np.stack([_ranks(first), _ranks(second)])
    away = ranks - ranks.mean(axis=1, keepdims=True)
    scale = np.sqrt((away**2).sum(axis=1).prod())
    return float((away[0] * away[1]).sum() / scale) if scale > 0 else None


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the ranks. Equal values share the mean of their ranks."""
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared = last - (counts - 1) / 2
    return np.asarray(shared[places], np.float64)


class StalenessGuard:
    """Forbids stale weights for one iteration after each low rank correlation."""

    def __init__(self, min_spearman: float) -> None:
        self._min = min_spearman
        self.stale_allowed = True
        self.trips = 0
        """Number of iterations without stale weights so far."""
        self.last: float | None = None

    def record(self, correlation: float | None) -> None:
        """Record the correlation of an iteration; None if it is unknown, which allows stale weights."""
        self.last = correlation
        self.stale_allowed = correlation is None or correlation >= self._min
        self.trips += not self.stale_allowed

    def state_dict(self) -> dict[str, Any]:
        """Return the values to save."""
        return {"staleAllowed": self.stale_allowed, "trips": self.trips, "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved values."""
        self.stale_allowed, self.trips = state["staleAllowed"], state["trips"]
        self.last = state["last"]
