"""The analysis of an Experiment: from the plan and the ended blocks to the result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import Deviation
from convoy_crds.experiment_hash import plan_hash
from convoy_crds.experiment_plan import Contrast
from convoy_crds.experiment_schedule import combinations, schedule
from convoy_crds.experiment_status import BlockStatus, TuningStatus, Verdict
from convoy_crds.reasons.catalogue import Reasons
from convoy_workloads.experiments import effects, power
from convoy_workloads.experiments.controls import controls
from convoy_workloads.experiments.deviations import check_blocks, deviations
from convoy_workloads.experiments.health import collapse, flags
from convoy_workloads.experiments.holm import holm
from convoy_workloads.experiments.hypotheses import Hypothesis, hypotheses, sign
from convoy_workloads.experiments.intervals import Interval, attained_level, mean_interval, ratio_interval
from convoy_workloads.experiments.levels import levels
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.paired import Pairs, pairs
from convoy_workloads.experiments.permutation import sign_flip
from convoy_workloads.experiments.result import (
    BlockCounts,
    ControlResult,
    Failure,
    HypothesisResult,
    Result,
)
from convoy_workloads.experiments.verdicts import Estimate, decide, only_bounds, unequal_words, words


@dataclass(frozen=True)
class Decision:
    """The verdict on one hypothesis."""

    verdict: Verdict | None
    reason: str
    sensitivity: str = ""


@dataclass(frozen=True)
class Family:
    """The settings that all hypotheses of an experiment share."""

    spec: ExperimentSpec
    size: int
    """Number of hypotheses."""

    def seed(self, *key: object) -> int:
        """Return the seed of the random numbers for one purpose. It follows from the experiment's seed."""
        text = "/".join(map(str, ("analysis", self.spec.seed, *key)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def level(self, hypothesis: Hypothesis) -> float:
        """Return the level of the hypothesis' interval: a test with one side belongs to an interval with
        twice the error.
        """
        return 1 - self.spec.analysis.alpha * (2 if hypothesis.one_sided else 1)

    def raw_p(self, hypothesis: Hypothesis, differences: Sequence[float]) -> float:
        """Return the p-value of the mean difference being the hypothesis' threshold. A hypothesis with one
        side gets the p-value of the side on which the mean lies.
        """
        shifted = [one - hypothesis.threshold for one in differences]
        seed, resamples = self.seed("p", hypothesis.label), self.spec.analysis.resamples
        if hypothesis.one_sided:
            side = "greater" if math.fsum(shifted) >= 0 else "less"
            return float(sign_flip(shifted, side, resamples, seed))  # type: ignore[arg-type]
        return float(sign_flip(shifted, "two-sided", resamples, seed))

    def interval(self, hypothesis: Hypothesis, differences: Sequence[float]) -> Interval | None:
        """Return the confidence interval of the mean difference."""
        seed, resamples = self.seed("interval", hypothesis.label), self.spec.analysis.resamples
        return mean_interval(differences, self.level(hypothesis), resamples, seed)

    def estimate(self, hypothesis: Hypothesis, differences: Sequence[float], p: float) -> Estimate:
        """Return the estimate from which the verdict follows. `p`: the corrected p-value."""
        return Estimate(len(differences), mean(differences), self.interval(hypothesis, differences), p)

    def minimum_effect(self, hypothesis: Hypothesis, differences: Sequence[float]) -> float | None:
        """Return the smallest difference from the threshold that would have been found."""
        settings = self.spec.analysis
        level, one_sided = settings.alpha / self.size, hypothesis.one_sided
        return power.minimum_effect(differences, level, settings.power, one_sided, settings.resamples)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None without values."""
    return math.fsum(values) / len(values) if values else None


def analyse(
    plan: Mapping[str, Any],
    blocks: Sequence[Mapping[str, Any]],
    tuning: Sequence[Mapping[str, Any]] = (),
    recorded: Sequence[Mapping[str, Any]] = (),
) -> Result:
    """Return the result of an experiment.

    `plan`: the plan document. `blocks` and `tuning`: rows of the Experiment's status. `recorded`: deviations
    from the plan that the operator has seen. Raises DataMismatch if the blocks do not belong to the plan.
    """
    spec = ExperimentSpec.model_validate(plan["spec"])
    ended = sorted((BlockStatus.model_validate(one) for one in blocks), key=lambda one: one.id)
    tuned = [TuningStatus.model_validate(one) for one in tuning]
    check_blocks(spec, ended)
    observations = Observations(ended)
    found = controls(spec, ended, observations) if spec.sweep is None else ()
    valid = all(one.passed for one in found)
    seen = [Deviation.model_validate(one) for one in recorded]
    void = _void(valid, seen)
    return Result(
        experiment=plan["name"],
        plan_hash=plan_hash(plan),
        valid=valid,
        void=void,
        alpha=spec.analysis.alpha,
        power=spec.analysis.power,
        blocks=BlockCounts(
            planned=len(schedule(spec)), ended=len(ended), failed=sum(one.failed for one in ended)
        ),
        controls=[
            ControlResult(name=one.name, passed=one.passed, message=one.message) for one in found
        ],
        hypotheses=_hypotheses(spec, observations, void),
        levels=levels(spec, observations, _labels(spec)),
        tuning=tuned,
        flags=list(flags(spec, tuned)),
        recorded=[str(one) for one in seen],
        deviations=list(deviations(spec, ended)),
        failures=[
            Failure(block=block.id, arm=one.arm, reason=one.reason, message=one.message)
            for block in ended
            for one in block.failures
        ],
    )  # fmt: skip


def _void(valid: bool, recorded: Sequence[Deviation]) -> str:
    """Return the reason why there are no verdicts; an empty text if there are."""
    if not valid:
        return "the experiment is invalid, because a control failed"
    reason = Reasons.TOO_MANY_FAILED_BLOCKS
    failed = next((one for one in recorded if one.reason == reason.name), None)
    return f"the experiment failed: {failed.message}" if failed is not None else ""


def _labels(spec: ExperimentSpec) -> list[str]:
    if spec.sweep is None:
        return [arm.name for arm in spec.arms]
    return [str(number) for number in range(len(combinations(spec.sweep.parameters)))]


def _hypotheses(spec: ExperimentSpec, observations: Observations, void: str) -> list[HypothesisResult]:
    tested = hypotheses(spec)
    family = Family(spec, len(tested))
    paired = [pairs(observations, one) for one in tested]
    raw = [family.raw_p(one, of.differences) for one, of in zip(tested, paired, strict=True)]
    adjusted = holm(raw)
    results = []
    for number, hypothesis in enumerate(tested):
        differences = paired[number].differences
        estimate = family.estimate(hypothesis, differences, adjusted[number])
        minimum = family.minimum_effect(hypothesis, differences)
        decision = Decision(None, void)
        if not void:
            collapsed, blind = collapse(spec, observations, hypothesis), only_bounds(paired[number])
            verdict = decide(hypothesis, estimate, spec.analysis.alpha, collapsed)
            if blind and not collapsed:
                verdict = Verdict.UNDECIDED
            why = collapsed or blind or words(hypothesis, estimate, verdict, minimum)
            decision = Decision(verdict, why + unequal_words(hypothesis, paired[number]))
            if not (collapsed or blind):
                data = (hypothesis, paired[number], raw)
                decision = replace(decision, sensitivity=_sensitivity(family, number, data, verdict))
        results.append(_result(family, hypothesis, paired[number], estimate, decision, raw[number]))
    return results


def _result(
    family: Family,
    hypothesis: Hypothesis,
    found: Pairs,
    estimate: Estimate,
    decision: Decision,
    raw_p: float,
) -> HypothesisResult:
    prediction, outcome = hypothesis.prediction, hypothesis.outcome
    low, high = estimate.interval or (None, None)
    ratio, ratio_ends = None, None
    if prediction.contrast is Contrast.LEVEL:
        ratio_ends = ratio_interval(
            found.first,
            found.second,
            family.level(hypothesis),
            family.spec.analysis.resamples,
            family.seed("ratio", hypothesis.label),
        )
        if ratio_ends is not None:
            ratio = math.fsum(found.first) / math.fsum(found.second)
    return HypothesisResult(
        prediction=prediction.name,
        prediction_index=hypothesis.index,
        magnitude_index=hypothesis.magnitude_index,
        candidate=prediction.candidate,
        comparator=prediction.comparator,
        outcome=outcome.name,
        unit=outcome.unit,
        direction=prediction.direction,
        margin=prediction.margin,
        contrast=prediction.contrast,
        perturbation=hypothesis.cell.perturbation,
        magnitude=hypothesis.cell.magnitude,
        verdict=decision.verdict,
        reason=decision.reason,
        sensitivity=decision.sensitivity,
        blocks=estimate.blocks,
        failed=list(found.failed),
        achieved_candidate=found.achieved_first,
        achieved_comparator=found.achieved_second,
        unequal=found.unequal,
        censored_candidate=found.censored_first,
        censored_comparator=found.censored_second,
        effect=estimate.effect,
        low=low,
        high=high,
        level=attained_level(estimate.blocks, family.level(hypothesis)),
        raw_p=raw_p,
        p=estimate.p,
        minimum_effect=family.minimum_effect(hypothesis, found.differences),
        standardised=effects.standardised(found.differences),
        cliffs_delta=effects.cliffs_delta(found.first, found.second, sign(outcome)),
        ratio=ratio,
        ratio_low=ratio_ends[0] if ratio_ends else None,
        ratio_high=ratio_ends[1] if ratio_ends else None,
        candidate_mean=mean(found.first),
        comparator_mean=mean(found.second),
        repetitions=list(found.repetitions),
        differences=list(found.differences),
    )


def _sensitivity(
    family: Family,
    number: int,
    data: tuple[Hypothesis, Pairs, Sequence[float]],
    verdict: Verdict,
) -> str:
    """Return a sentence about the pairs that failed, or did not run because the experiment stopped early:
    whether the verdict changes if each of them had the largest observed distance from the threshold. `data`:
    the hypothesis with its pairs, and the p-values of the family.
    """
    hypothesis, found, raw = data
    failed = len(found.failed)
    missing = family.spec.blocks - len(found.repetitions) - failed
    if failed + missing == 0 or not found.differences:
        return ""
    reach = max(abs(one - hypothesis.threshold) for one in found.differences)
    changed = set()
    for direction in (-1.0, 1.0):
        worst = [*found.differences, *[hypothesis.threshold + direction * reach] * (failed + missing)]
        other = [*raw]
        other[number] = family.raw_p(hypothesis, worst)
        estimate = family.estimate(hypothesis, worst, holm(other)[number])
        changed.add(decide(hypothesis, estimate, family.spec.analysis.alpha, ""))
    several = _lost_pairs(failed, missing)
    others = sorted(one.value for one in changed - {verdict})
    if not others:
        return f"{several} could not change the verdict, even at the largest observed distance"
    return f"{several} could change the verdict to {' or '.join(others)}"


def _lost_pairs(failed: int, missing: int) -> str:
    """Return the name of the pairs without a difference."""
    counts = [f"{count} {word}" for count, word in ((failed, "failed"), (missing, "missing")) if count]
    if failed + missing == 1:
        return f"the {counts[0].removeprefix('1 ')} pair"
    return f"the {' and '.join(counts)} pairs"
