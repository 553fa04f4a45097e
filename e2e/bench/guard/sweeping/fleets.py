"""A made-up fleet: nodes of which some are slow, and what a test of two of them takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RACK = 8
"""Nodes."""
Row = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Noise of a test besides its nodes. Shares; standard deviations where nothing else is said."""

    fleet: float = 0.01
    """Between healthy nodes, for good."""
    test: float = 0.02
    """Between tests."""
    heavy: bool = False
    """Student's t with 3 degrees of freedom, of the same standard deviation."""
    collided: float = 0.0
    """The share of tests that collide with other traffic and take 15 % longer."""
    rack: float = 0.0
    """Between racks, for good."""
    rack_round: float = 0.0
    """A rack's noise in one round, common to all its tests."""


@dataclass(frozen=True)
class Case:
    """A fleet and its faults."""

    words: str
    nodes: int
    faulty: int
    slow: float
    """1.1 takes 10 % longer."""
    noise: Noise = Noise()


class Fleet:
    """One draw of a case. A test of two nodes takes what the slower takes: 1 for two perfect ones."""

    def __init__(self, case: Case, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(seed)
        self._noise = case.noise
        self.count = case.nodes
        racks = math.ceil(case.nodes / RACK)
        own = self._rng.normal(0, case.noise.fleet, case.nodes)
        own += self._rng.normal(0, case.noise.rack, racks)[np.arange(case.nodes) // RACK]
        self.faulty = frozenset(int(one) for one in self._rng.choice(case.nodes, case.faulty, replace=False))
        own[list(self.faulty)] += math.log(case.slow)
        self._own = own
        self.tests = 0

    def matching(self) -> list[tuple[int, int]]:
        """Everybody with one other at random."""
        row = self._rng.permutation(self.count)
        return [(int(row[2 * at]), int(row[2 * at + 1])) for at in range(self.count // 2)]

    def pick(self, some: Sequence[int]) -> int:
        """One at random."""
        return some[int(self._rng.integers(len(some)))]

    def run(self, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """The times of tests that run in one round."""
        self.tests += len(pairs)
        noise, rng = self._noise, self._rng
        ends = np.array(pairs, int).reshape(-1, 2)
        took = self._own[ends].max(axis=1)
        if noise.heavy:
            took = took + rng.standard_t(3, len(pairs)) * noise.test / math.sqrt(3)
        else:
            took = took + rng.normal(0, noise.test, len(pairs))
        took = took + math.log(1.15) * (rng.random(len(pairs)) < noise.collided)
        busy = rng.normal(0, noise.rack_round, math.ceil(self.count / RACK))
        took = took + busy[ends // RACK].max(axis=1)
        return [float(one) for one in np.exp(took)]
