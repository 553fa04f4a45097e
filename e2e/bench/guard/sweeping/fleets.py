"""A synthetic fleet with slow nodes, and the simulated times of tests of node pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RACK = 8
"""Number of nodes in a rack."""
Row = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Sources of noise in the time of a test.

    Unless stated otherwise, a value is the standard deviation as a fraction of the time.
    """

    fleet: float = 0.01
    """Permanent difference between healthy nodes."""
    test: float = 0.02
    """Random difference between any two tests, even of the same pair."""
    heavy: bool = False
    """True if the noise between tests has heavy tails: Student's t with 3 degrees of freedom, scaled with
    `test`.
    """
    collided: float = 0.0
    """Fraction of tests (0 to 1) that collide with other traffic and take 15 % longer."""
    rack: float = 0.0
    """Permanent difference between racks."""
    rack_round: float = 0.0
    """Noise that is the same for all tests of one rack in one round."""


@dataclass(frozen=True)
class Case:
    """The size of a fleet, its slow nodes and its noise."""

    words: str
    nodes: int
    faulty: int
    slow: float
    """Factor by which a slow node's tests take longer: 1.1 means 10 % longer."""
    noise: Noise = Noise()


class Fleet:
    """A random fleet of a case.

    The slower node of a pair determines the time of the pair's test. Times are relative: a test of two
    perfect nodes takes 1.
    """

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
        """Return pairs of nodes, chosen at random, in which each node occurs at most once."""
        row = self._rng.permutation(self.count)
        return [(int(row[2 * at]), int(row[2 * at + 1])) for at in range(self.count // 2)]

    def pick(self, some: Sequence[int]) -> int:
        """Return a random element of `some`."""
        return some[int(self._rng.integers(len(some)))]

    def run(self, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """Return the time of each pair's test. All tests run in the same round."""
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
