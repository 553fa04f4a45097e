"""The controls of an Experiment. If one fails, the experiment is invalid and has no verdicts.

- Equal outcomes: an outcome that is neither better nor worse must be equal in all arms of a block.
- Negative control: an arm that is the same as another must show no difference.
- Positive control: an arm that is worse on purpose must be found to be worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import Arm, ArmRole
from convoy_crds.experiment_plan import Better, Outcome
from convoy_crds.experiment_status import BlockStatus
from convoy_workloads.experiments import power
from convoy_workloads.experiments.holm import holm
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.paired import pooled_differences
from convoy_workloads.experiments.permutation import Side, sign_flip

NEGATIVE_ALPHA = 0.01
"""Probability with which the negative control fails although the arms are the same (Holm over outcomes)."""


@dataclass(frozen=True)
class Control:
    """The result of one control."""

    name: str
    passed: bool
    message: str


def controls(
    spec: ExperimentSpec, blocks: Sequence[BlockStatus], observations: Observations
) -> tuple[Control, ...]:
    """Return the results of all controls of an experiment."""
    directed = [one for one in spec.outcomes if one.better is not Better.NEITHER]
    found = [_equal(one, blocks) for one in spec.outcomes if one.better is Better.NEITHER]
    for arm in spec.arms:
        if arm.role is ArmRole.NEGATIVE_CONTROL and directed:
            found.append(_negative(spec, arm, directed, observations))
        if arm.role is ArmRole.POSITIVE_CONTROL and directed:
            found.append(_positive(spec, arm, directed[0], observations))
    return tuple(found)


def safe_p(differences: Sequence[float], side: Side, resamples: int, enough: float, seed: int) -> float:
    """Return the p-value of the sign-flip test. If so few differences or resamples allow no p-value of
    `enough`, return that of Student's t-test instead. Fewer than two differences have the p-value 1.
    """
    count = len(differences)
    if count < 2:
        return 1.0
    if power.floor(count, side != "two-sided", resamples) <= enough:
        return float(sign_flip(differences, side, resamples, seed))
    if min(differences) == max(differences):
        toward = {"two-sided": differences[0] != 0, "greater": differences[0] > 0, "less": differences[0] < 0}
        return 0.0 if toward[side] else 1.0
    p = float(stats.ttest_1samp(np.asarray(differences), 0.0, alternative=side).pvalue)
    return p if math.isfinite(p) else 1.0


def _equal(outcome: Outcome, blocks: Sequence[BlockStatus]) -> Control:
    name, seen = f"equal {outcome.name}", 0
    for block in sorted(blocks, key=lambda one: one.id):
        values = {one.arm: one.value for one in block.figures if one.outcome == outcome.name}
        seen += len(values) > 1
        for arm, value in values.items():
            first = next(iter(values))
            if value != values[first]:
                return Control(
                    name,
                    False,
                    f"block {block.id}: {outcome.name} is {values[first]:g} in arm {first} and {value:g} in "
                    f"arm {arm}, although no arm can influence this outcome",
                )
    if not seen:
        return Control(name, False, f"no block has {outcome.name} of two arms")
    return Control(name, True, f"{outcome.name} is equal in all arms of {seen} blocks")


def _negative(
    spec: ExperimentSpec, arm: Arm, outcomes: Sequence[Outcome], observations: Observations
) -> Control:
    name, other = f"negative control {arm.name}", str(arm.control_of)
    series = [pooled_differences(observations, one, arm.name, other) for one in outcomes]
    if too_few := next(_too_few(outcomes, series), ""):
        return Control(name, False, too_few)
    enough = NEGATIVE_ALPHA / len(outcomes)
    resamples = spec.analysis.resamples
    raw = [safe_p(one, "two-sided", resamples, enough, spec.seed) for one in series]
    adjusted = holm(raw)
    at = min(range(len(raw)), key=lambda one: raw[one])
    smallest = f"{outcomes[at].name}: p = {adjusted[at]:.3g} after Holm's correction"
    if adjusted[at] <= NEGATIVE_ALPHA:
        return Control(name, False, f"{arm.name} and {other} are the same but differ in {smallest}")
    return Control(name, True, f"{arm.name} and {other} do not differ; the smallest p is that of {smallest}")


def _positive(spec: ExperimentSpec, arm: Arm, outcome: Outcome, observations: Observations) -> Control:
    name, other = f"positive control {arm.name}", str(arm.control_of)
    series = pooled_differences(observations, outcome, arm.name, other)
    if too_few := next(_too_few([outcome], [series]), ""):
        return Control(name, False, too_few)
    alpha = spec.analysis.alpha
    p = safe_p(series, "less", spec.analysis.resamples, alpha, spec.seed)
    if p <= alpha:
        return Control(name, True, f"{arm.name} is worse than {other} in {outcome.name}, p = {p:.3g}")
    return Control(
        name,
        False,
        f"{arm.name} is worse than {other} on purpose, but {outcome.name} does not show this: p = {p:.3g}",
    )


def _too_few(outcomes: Sequence[Outcome], series: Sequence[Sequence[float]]) -> Iterator[str]:
    for outcome, one in zip(outcomes, series, strict=True):
        if len(one) < 2:
            yield f"{outcome.name}: {len(one)} of the repetitions have both arms, and 2 are needed"
