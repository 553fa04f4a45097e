"""The hypotheses of an Experiment: each prediction under each condition for which it holds."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_plan import Better, Direction, Outcome, Prediction
from convoy_crds.experiment_schedule import Cell

UNPERTURBED = Cell()


@dataclass(frozen=True)
class Hypothesis:
    """A prediction under one condition."""

    index: int
    """Number of the prediction in the plan, from 0."""
    magnitude_index: int | None
    """Number of the magnitude in the perturbation, from 0; None without a perturbation."""
    prediction: Prediction
    outcome: Outcome
    cell: Cell

    @property
    def label(self) -> str:
        """Return the prediction's name and the condition, such as `faster at lag 60`."""
        return f"{self.prediction.name}{condition(self.cell, ' at ')}"

    @property
    def one_sided(self) -> bool:
        """Return True if the test has one side: of the answers *not worse* and *worse*, at most one is
        wrong.
        """
        return self.prediction.direction is Direction.NOT_WORSE

    @property
    def threshold(self) -> float:
        """Return the oriented difference that separates a right prediction from a wrong one."""
        return {
            Direction.BETTER: self.prediction.margin,
            Direction.WORSE: -self.prediction.margin,
            Direction.NOT_WORSE: -self.prediction.margin,
        }[self.prediction.direction]


def condition(cell: Cell, before: str = "") -> str:
    """Return a condition as text after `before`, such as `lag 60`. Return an empty text for the unperturbed
    condition.
    """
    return "" if cell.magnitude is None else f"{before}{cell.perturbation} {cell.magnitude:g}"


def sign(outcome: Outcome) -> float:
    """Return the factor that orients differences of an outcome: above 0, the first arm is better."""
    return -1.0 if outcome.better is Better.LOWER else 1.0


def hypotheses(spec: ExperimentSpec) -> tuple[Hypothesis, ...]:
    """Return the family of hypotheses, in the order of the plan."""
    outcomes = {outcome.name: outcome for outcome in spec.outcomes}
    magnitudes = {one.name: one.magnitudes for one in spec.perturbations or ()}
    found: list[Hypothesis] = []
    for index, prediction in enumerate(spec.predictions or ()):
        outcome = outcomes[prediction.outcome]
        if prediction.perturbation is None:
            found.append(Hypothesis(index, None, prediction, outcome, UNPERTURBED))
            continue
        for number, magnitude in enumerate(magnitudes[prediction.perturbation]):
            cell = Cell(prediction.perturbation, magnitude)
            found.append(Hypothesis(index, number, prediction, outcome, cell))
    return tuple(found)
