"""A choice among candidates by a learned network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from convoy_workloads.simulators.scorer import Scorer, best, draw, probabilities

Rows = list[list[float]]
"""The features of each candidate."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of a run, for the training."""

    now: float
    rows: Rows
    chances: list[float]
    chosen: int


@dataclass(slots=True)
class LearnedChoice:
    """The best candidate, or a random one if `temperature` is above 0."""

    scorer: Scorer
    temperature: float = 0.0
    seed: int = 0
    steps: list[Step] | None = None
    """Random decisions are recorded here for the training; None to record none."""
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(f"{self.seed}/choice")  # noqa: S311 - must be repeatable

    def choose(self, now: float, rows: Rows) -> int:
        """Return the index of the chosen candidate."""
        if len(rows) == 1:
            return 0
        scores = [self.scorer.score(row) for row in rows]
        if self.temperature == 0:
            return best(scores)
        chances = probabilities([one / self.temperature for one in scores])
        chosen = draw(chances, self._draw.random())
        if self.steps is not None:
            self.steps.append(Step(now, rows, chances, chosen))
        return chosen


def learned_choice(
    shape: tuple[int, int], weights: Sequence[float], temperature: float, seed: int
) -> LearnedChoice:
    """Return the choice of a network with `shape`: its numbers of inputs and of hidden units."""
    return LearnedChoice(Scorer(*shape, weights), temperature, seed)
