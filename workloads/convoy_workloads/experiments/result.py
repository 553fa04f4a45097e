"""The machine-readable result of an analysis: the contents of `result.json`."""

from __future__ import annotations

from typing import Any

from convoy_crds.experiment_plan import Contrast, Direction
from convoy_crds.experiment_status import RunFailure, TuningStatus, Verdict
from convoy_crds.meta import Model

DIGITS = 10
"""Significant digits of all numbers. Further digits may differ between processors."""


class BlockCounts(Model):
    """Numbers of planned, ended and failed blocks."""

    planned: int
    ended: int
    failed: int


class ControlResult(Model):
    """The result of one control."""

    name: str
    passed: bool
    message: str


class HypothesisResult(Model):
    """The result for one prediction under one condition."""

    prediction: str
    prediction_index: int
    magnitude_index: int | None = None
    candidate: str
    comparator: str
    outcome: str
    unit: str
    direction: Direction
    margin: float
    contrast: Contrast
    perturbation: str
    magnitude: float | None = None
    verdict: Verdict | None = None
    """None if the result is void."""
    reason: str
    """One sentence that explains the verdict."""
    blocks: int
    """Number of complete pairs."""
    failed: list[int]
    """Repetitions without a pair, because a run failed."""
    achieved_candidate: float | None = None
    """Mean of the measured magnitudes of the perturbation in the candidate's runs."""
    achieved_comparator: float | None = None
    unequal: bool = False
    """True if these two differ by more than 10 %."""
    censored_candidate: int
    censored_comparator: int
    effect: float | None = None
    """Mean oriented difference; above 0, the candidate is better."""
    low: float | None = None
    high: float | None = None
    level: float
    """Level that the confidence interval from `low` to `high` has. It is below the plan's level if there are
    too few blocks.
    """
    raw_p: float
    p: float
    """p-value after Holm's correction over all hypotheses."""
    minimum_effect: float | None = None
    standardised: float | None = None
    """Effect divided by the standard deviation of the differences (d_z)."""
    cliffs_delta: float | None = None
    ratio: float | None = None
    """Mean of the candidate divided by the mean of the comparator."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    candidate_mean: float | None = None
    comparator_mean: float | None = None
    repetitions: list[int]
    differences: list[float]
    sensitivity: str = ""
    """Effect of the failed blocks on the verdict in the worst case; empty without failed blocks."""


class Level(Model):
    """The values of one outcome of one arm under one condition."""

    arm: str
    outcome: str
    perturbation: str
    magnitude: float | None = None
    blocks: int
    censored: int
    mean: float
    median: float
    low: float | None = None
    """Lower end of the 95 % interval of the mean (Student's t)."""
    high: float | None = None


class Failure(RunFailure):
    """A run without figures."""

    block: int


class Result(Model):
    """The result of an analysis. It contains no times, so equal data give an equal digest."""

    experiment: str
    plan_hash: str
    valid: bool
    """False if a control failed."""
    void: str = ""
    """Reason why there are no verdicts; empty if there are."""
    alpha: float
    power: float
    blocks: BlockCounts
    controls: list[ControlResult]
    hypotheses: list[HypothesisResult]
    levels: list[Level]
    tuning: list[TuningStatus]
    flags: list[str]
    """Remarks about the tuning of comparators."""
    recorded: list[str]
    """Deviations from the plan that the operator has seen, such as an early stop or another image."""
    deviations: list[str]
    """Deviations of the data from the plan."""
    failures: list[Failure]

    def document(self) -> dict[str, Any]:
        """Return the result as JSON values with DIGITS significant digits."""
        found: dict[str, Any] = rounded(self.to_dict(), DIGITS)
        return found


def rounded(value: Any, digits: int) -> Any:
    """Return a JSON value with all its numbers rounded to significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits - 1}e}")
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one, digits) for one in value]
    return value
