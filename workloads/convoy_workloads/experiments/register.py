"""The checks of a plan before its registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_status import TuningStatus
from convoy_workloads.experiments import power
from convoy_workloads.experiments.hypotheses import hypotheses
from convoy_workloads.simulators import plan_check


def power_problem(spec: ExperimentSpec) -> str:
    """Return the reason why some predictions can never be decided with the plan's number of blocks; an empty
    text if all can.

    Holm's correction tests the smallest p-value at alpha / m, and the k-th one at alpha / (m - k + 1). Tests
    with one side reach the smaller p-values. So those with two sides may come last.
    """
    family = hypotheses(spec)
    sided = sum(one.one_sided for one in family)
    found = _undecided(spec, len(family), one_sided=True) if sided else ""
    if found or sided == len(family):
        return found
    return _undecided(spec, len(family) - sided, one_sided=False)


def _undecided(spec: ExperimentSpec, family: int, one_sided: bool) -> str:
    """Return the reason why no test of this kind can be the first of `family` that is decided."""
    blocks, resamples, alpha = spec.blocks, spec.analysis.resamples, spec.analysis.alpha
    enough, smallest = alpha / family, power.floor(blocks, one_sided, resamples)
    if smallest <= enough:
        return ""
    if power.floor(blocks, one_sided) <= enough:
        path, count = "spec.analysis.resamples", f"{resamples} resamples"
        needed = power.resamples_needed(alpha, family, one_sided)
    else:
        path, count = "spec.blocks", f"{blocks} blocks"
        needed = power.blocks_needed(alpha, family, one_sided)
    kind = "with one side (NotWorse)" if one_sided else "with two sides (Better, Worse)"
    return (
        f"{path}: with {count} the smallest possible p-value of a test {kind} is {smallest:.3g}, but "
        f"{family} hypotheses at alpha {alpha:g} need {enough:.3g} (Holm): set {path.rpartition('.')[2]} to "
        f"{needed} or more, or make fewer predictions"
    )


def problems(spec: ExperimentSpec, tuning: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Return the reasons why a plan must not be registered, each with the path of its field. `tuning`: rows
    of `status.tuning` that arms have taken over from other experiments.
    """
    taken = [TuningStatus.model_validate(one) for one in tuning]
    return [*filter(None, [power_problem(spec)]), *plan_check.problems(spec, taken)]


def spec_of(plan: Mapping[str, Any]) -> ExperimentSpec:
    """Return the spec of a plan document."""
    return ExperimentSpec.model_validate(plan["spec"])
