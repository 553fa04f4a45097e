"""Paired differences of two arms: one difference for each repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from convoy_crds.experiment_plan import Contrast, Outcome
from convoy_crds.experiment_schedule import Cell
from convoy_workloads.experiments.hypotheses import UNPERTURBED, Hypothesis, sign
from convoy_workloads.experiments.observations import Observations, Observed

ROUNDING = 1e-12
"""Largest relative difference that counts as an error of rounding."""
MAGNITUDE_TOLERANCE = 0.1
"""Largest relative difference of two magnitudes that needs no remark."""


@dataclass(frozen=True)
class Pairs:
    """The complete pairs of two arms. The sequences have one entry for each pair."""

    repetitions: tuple[int, ...]
    first: tuple[float, ...]
    """Values of the first arm. For a degradation: their changes from the unperturbed run."""
    second: tuple[float, ...]
    differences: tuple[float, ...]
    """Oriented differences: above 0, the first arm is better."""
    failed: tuple[int, ...]
    """Repetitions that ended without one of the values, because a run failed."""
    censored_first: int
    censored_second: int
    achieved_first: float | None = None
    """Mean of the measured magnitudes of the perturbation in the first arm; None if none was measured."""
    achieved_second: float | None = None

    @property
    def unequal(self) -> bool:
        """Return True if the perturbation has disturbed one arm more than the other."""
        first, second = self.achieved_first, self.achieved_second
        if first is None or second is None:
            return False
        return not math.isclose(first, second, rel_tol=MAGNITUDE_TOLERANCE)


def pairs(observations: Observations, hypothesis: Hypothesis) -> Pairs:
    """Return the pairs of candidate and comparator under the hypothesis' condition."""
    prediction = hypothesis.prediction
    cells = [hypothesis.cell]
    if prediction.contrast is Contrast.DEGRADATION:
        cells = [UNPERTURBED, hypothesis.cell]
    return arm_pairs(observations, hypothesis.outcome, prediction.candidate, prediction.comparator, cells)


def arm_pairs(
    observations: Observations, outcome: Outcome, first: str, second: str, cells: Sequence[Cell]
) -> Pairs:
    """Return the pairs of two arms under a condition. With two `cells`, the values are the changes from the
    first cell to the second.
    """
    *_, ended = (observations.repetitions(cell) for cell in cells)
    ended = tuple(one for one in ended if all(one in observations.repetitions(cell) for cell in cells))
    values: list[tuple[int, float, float, float]] = []
    failed: list[int] = []
    censored = [0, 0]
    for repetition in ended:
        sides = [
            [observations.get(cell, repetition, arm, outcome.name) for cell in cells]
            for arm in (first, second)
        ]
        if any(one is None for side in sides for one in side):
            failed.append(repetition)
            continue
        known = [[one for one in side if one is not None] for side in sides]
        censored = [
            count + any(one.censored for one in side) for count, side in zip(censored, known, strict=True)
        ]
        values.append((repetition, _value(known[0]), _value(known[1]), _scale(known)))
    factor = sign(outcome)
    complete = [repetition for repetition, *_ in values]
    return Pairs(
        repetitions=tuple(complete),
        first=tuple(one for _, one, _, _ in values),
        second=tuple(other for _, _, other, _ in values),
        differences=tuple(
            _difference(factor * one, factor * other, scale) for _, one, other, scale in values
        ),
        failed=tuple(failed),
        censored_first=censored[0],
        censored_second=censored[1],
        achieved_first=_mean_achieved(observations, cells[-1], complete, first),
        achieved_second=_mean_achieved(observations, cells[-1], complete, second),
    )


def _mean_achieved(
    observations: Observations, cell: Cell, repetitions: Sequence[int], arm: str
) -> float | None:
    """Return the mean of the measured magnitudes of an arm; None if none was measured."""
    measured = [observations.achieved(cell, repetition, arm) for repetition in repetitions]
    known = [one for one in measured if one is not None]
    return math.fsum(known) / len(known) if known else None


def pooled_differences(
    observations: Observations, outcome: Outcome, first: str, second: str
) -> tuple[float, ...]:
    """Return one oriented difference for each repetition: the mean over all conditions in which both arms
    have a value. Blocks of one repetition share their seed, so they are not independent.
    """
    found: dict[int, list[float]] = {}
    for cell in observations.cells:
        one = arm_pairs(observations, outcome, first, second, [cell])
        for repetition, difference in zip(one.repetitions, one.differences, strict=True):
            found.setdefault(repetition, []).append(difference)
    return tuple(sum(several) / len(several) for _, several in sorted(found.items()))


def _value(of_cells: Sequence[Observed]) -> float:
    """Return the value of the only cell, or the change from the first cell to the second."""
    return of_cells[0].value if len(of_cells) == 1 else of_cells[1].value - of_cells[0].value


def _scale(known: Sequence[Sequence[Observed]]) -> float:
    return max(abs(one.value) for side in known for one in side)


def _difference(one: float, other: float, scale: float) -> float:
    """Return the difference of two values. What is left of equal values after rounding becomes 0. `scale`:
    the largest of the values from which both were computed.
    """
    difference = one - other
    return difference if abs(difference) > ROUNDING * scale else 0.0
