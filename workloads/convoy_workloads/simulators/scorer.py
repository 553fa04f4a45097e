"""A small neural network that gives a score to each candidate of a decision. Learned policies use it.

The score is a linear function of the features plus one hidden layer of tanh units. All sums have a fixed
order and use no linear-algebra library, so the same weights give the same decisions on any machine of an
architecture.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

Features = Sequence[float]


class Scorer:
    """The network. Its weights are one flat list: the linear part, the output of the hidden units, and then
    the inputs of each hidden unit.
    """

    def __init__(self, inputs: int, hidden: int, weights: Sequence[float]) -> None:
        """Raises ValueError if the number of weights does not fit."""
        expected = weight_count(inputs, hidden)
        if len(weights) != expected:
            raise ValueError(f"weights: there must be {expected} numbers, not {len(weights)}")
        self._linear = tuple(weights[:inputs])
        self._output = tuple(weights[inputs : inputs + hidden])
        first = inputs + hidden
        self._rows = [
            tuple(weights[first + unit * inputs : first + (unit + 1) * inputs]) for unit in range(hidden)
        ]

    def score(self, features: Features) -> float:
        """Return the score of one candidate."""
        total = _dot(self._linear, features)
        for weight, row in zip(self._output, self._rows, strict=True):
            total += weight * math.tanh(_dot(row, features))
        return total

    def gradient(self, features: Features) -> list[float]:
        """Return the derivative of the score by each weight, in the order of the weights."""
        units = [math.tanh(_dot(row, features)) for row in self._rows]
        found = [*features, *units]
        for weight, unit in zip(self._output, units, strict=True):
            slope = weight * (1 - unit * unit)
            found += [slope * one for one in features]
        return found


def weight_count(inputs: int, hidden: int) -> int:
    """Return the number of weights of a scorer."""
    return inputs + hidden + hidden * inputs


def initial_weights(inputs: int, hidden: int, seed: int) -> list[float]:
    """Return weights with which every candidate has the score 0. The hidden units are random, so that they
    can learn different features.
    """
    draw = random.Random(f"{seed}/scorer")  # noqa: S311 - must be repeatable
    spread = 1 / math.sqrt(inputs)
    return [0.0] * (inputs + hidden) + [draw.gauss(0, spread) for _ in range(hidden * inputs)]


def probabilities(scores: Sequence[float]) -> list[float]:
    """Return the softmax of the scores."""
    top = max(scores)
    powers = [math.exp(one - top) for one in scores]
    total = math.fsum(powers)
    return [one / total for one in powers]


def best(scores: Sequence[float]) -> int:
    """Return the index of the largest score, the first one among equals."""
    return max(range(len(scores)), key=scores.__getitem__)


def draw(chances: Sequence[float], chance: float) -> int:
    """Return the index that a random number from 0 to 1 selects."""
    reached = 0.0
    for index, one in enumerate(chances):
        reached += one
        if chance < reached:
            return index
    return len(chances) - 1


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for one, other in zip(left, right, strict=True):
        total += one * other
    return total
