"""The rules from an estimate to a verdict.

A prediction states that the oriented difference lies on one side of a threshold. The verdict needs a small
p-value of the difference from the threshold, and a confidence interval on one side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.experiment_plan import Contrast, Direction
from convoy_crds.experiment_status import Verdict
from convoy_workloads.experiments.hypotheses import Hypothesis
from convoy_workloads.experiments.intervals import Interval
from convoy_workloads.experiments.paired import Pairs


@dataclass(frozen=True)
class Estimate:
    """The facts about one hypothesis from which the verdict follows."""

    blocks: int
    """Number of complete pairs."""
    effect: float | None
    """Mean oriented difference; None without pairs."""
    interval: Interval | None
    p: float
    """p-value of the effect being the threshold, after Holm's correction."""


def decide(hypothesis: Hypothesis, estimate: Estimate, alpha: float, collapsed: str) -> Verdict:
    """Return the verdict on a hypothesis. `collapsed`: the reason why its comparator has collapsed, if it
    has.
    """
    if collapsed:
        return Verdict.COMPARATOR_COLLAPSED
    if estimate.effect is None or estimate.interval is None or estimate.p > alpha:
        return Verdict.UNDECIDED
    low, high = estimate.interval
    above, below = low > hypothesis.threshold, high < hypothesis.threshold
    if not (above or below):
        return Verdict.UNDECIDED
    predicted_above = hypothesis.prediction.direction is not Direction.WORSE
    return Verdict.SUPPORTED if above is predicted_above else Verdict.CONTRADICTED


def only_bounds(found: Pairs) -> str:
    """Return the reason why the pairs say nothing, if both values of each pair are only bounds; an empty text
    if they are not.
    """
    count = len(found.repetitions)
    if count and found.censored_first == found.censored_second == count:
        return "both arms are censored in every pair, so their real values may differ by any amount"
    return ""


def unequal_words(hypothesis: Hypothesis, found: Pairs) -> str:
    """Return the end of a sentence about arms that were not disturbed equally; an empty text if they were."""
    if not found.unequal:
        return ""
    candidate, comparator = hypothesis.prediction.candidate, hypothesis.prediction.comparator
    return (
        f"; but the perturbation reached {found.achieved_first:.3g} in {candidate} and "
        f"{found.achieved_second:.3g} in {comparator} on average"
    )


def words(hypothesis: Hypothesis, estimate: Estimate, verdict: Verdict, minimum: float | None) -> str:
    """Return one sentence that explains a verdict that no collapsed comparator has caused."""
    if estimate.effect is None:
        return "no block has a value of both arms"
    if estimate.blocks < 2:
        return "one pair has no spread, so nothing can be concluded"
    claim = _claim(hypothesis)
    if verdict is Verdict.SUPPORTED:
        return f"the data show that {claim}"
    if verdict is Verdict.CONTRADICTED:
        return f"the data show that this is wrong: {claim}"
    if minimum is None:
        return (
            f"{estimate.blocks} blocks allow no p-value that is small enough in this family: "
            "use more blocks, more resamples or fewer predictions"
        )
    unit = f" {hypothesis.outcome.unit}" if hypothesis.outcome.unit else ""
    return (
        f"the data show neither; a difference of {minimum:.3g}{unit} from the threshold would probably have "
        "been found"
    )


def _claim(hypothesis: Hypothesis) -> str:
    prediction, unit = hypothesis.prediction, hypothesis.outcome.unit
    margin = f"{prediction.margin:g} {unit}".strip()
    by = f" by more than {margin}" if prediction.margin else ""
    if prediction.direction is Direction.NOT_WORSE:
        relation = f"is at most {margin} worse than" if prediction.margin else "is not worse than"
    else:
        relation = {Direction.BETTER: "is better", Direction.WORSE: "is worse"}[prediction.direction]
        relation = f"{relation}{by} than" if by else f"{relation} than"
    degradation = prediction.contrast is Contrast.DEGRADATION
    what = f"the degradation of {prediction.outcome}" if degradation else prediction.outcome
    return f"{prediction.candidate} {relation} {prediction.comparator} in {what}"
