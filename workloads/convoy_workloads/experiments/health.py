"""The health of comparators. A comparison with a comparator that does not work says nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import ArmRole
from convoy_crds.experiment_plan import Contrast
from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import TuningStatus
from convoy_workloads.experiments.controls import safe_p
from convoy_workloads.experiments.hypotheses import UNPERTURBED, Hypothesis, condition
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.paired import arm_pairs


def collapse(spec: ExperimentSpec, observations: Observations, hypothesis: Hypothesis) -> str:
    """Return the reason why the hypothesis' comparator has collapsed; an empty text if it works."""
    cells = [hypothesis.cell]
    if hypothesis.prediction.contrast is Contrast.DEGRADATION:
        cells = [UNPERTURBED, hypothesis.cell]
    return next(
        (
            reason
            for cell in cells
            for reason in (*_limits(spec, observations, hypothesis.prediction.comparator, cell),
                           *_naive(spec, observations, hypothesis, cell))
        ),
        "",
    )  # fmt: skip


def _limits(spec: ExperimentSpec, observations: Observations, arm: str, cell: Cell) -> Iterator[str]:
    for limit in spec.analysis.health:
        values = [one.value for one in observations.series(cell, arm, limit.outcome)]
        if limit.arm != arm or not values:
            continue
        median = statistics.median(values)
        where = f"median {limit.outcome} of {arm}{condition(cell, ' under ')} is {median:g}"
        if limit.min is not None and median < limit.min:
            yield f"{where}, and its limit is at least {limit.min:g}"
        if limit.max is not None and median > limit.max:
            yield f"{where}, and its limit is at most {limit.max:g}"


def _naive(
    spec: ExperimentSpec, observations: Observations, hypothesis: Hypothesis, cell: Cell
) -> Iterator[str]:
    comparator, outcome = hypothesis.prediction.comparator, hypothesis.outcome
    alpha, resamples = spec.analysis.alpha, spec.analysis.resamples
    for arm in spec.arms:
        if arm.role is not ArmRole.NAIVE or comparator == arm.name:
            continue
        found = arm_pairs(observations, outcome, comparator, arm.name, [cell])
        p = safe_p(found.differences, "less", resamples, alpha, spec.seed)
        if p <= alpha:
            where = condition(cell, " under ")
            yield f"{comparator} is worse than the naive arm {arm.name} in {outcome.name}{where}: p = {p:.3g}"


def flags(spec: ExperimentSpec, tuning: Sequence[TuningStatus]) -> tuple[str, ...]:
    """Return remarks about the requests and the tuning that a reader must know."""
    known = {one.arm: one for one in tuning}
    found = [*_load_flags(spec)]
    compared = {one.comparator for one in spec.predictions or ()}
    for arm in spec.arms:
        if arm.name in compared and arm.tuning is None and arm.role is ArmRole.COMPARATOR:
            found.append(
                f"comparator {arm.name} is not tuned: a tuned one might do better. Add tuning to the arm"
            )
        if arm.tuning is not None and arm.name in known:
            found += _tuning_flags(arm.tuning.trials, known[arm.name])
    return tuple(found)


def _load_flags(spec: ExperimentSpec) -> Iterator[str]:
    """Yield a remark for each arm that gets other requests than the first one."""
    loaded = [one for one in spec.arms if one.load is not None and one.role is not ArmRole.POSITIVE_CONTROL]
    for arm in loaded[1:]:
        first, other = loaded[0].load or {}, arm.load or {}
        names = sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
        if names:
            yield f"arms {loaded[0].name} and {arm.name} get different requests: load.{', load.'.join(names)}"


def _tuning_flags(planned: int, tuning: TuningStatus) -> Iterator[str]:
    if tuning.failure:
        yield f"the tuning of {tuning.arm} failed: {tuning.failure}"
    elif tuning.trials < planned:
        yield f"the tuning of {tuning.arm} made {tuning.trials} of {planned} trials"
    if edges := [one.path for one in tuning.values if one.at_edge]:
        yield (
            f"the tuned {', '.join(edges)} of {tuning.arm} is at the edge of its range: "
            "a wider range might do better"
        )
