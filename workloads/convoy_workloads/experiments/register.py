"""The checks of a plan before its registration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_workloads.experiments import power
from convoy_workloads.experiments.hypotheses import hypotheses
from convoy_workloads.simulators import plan_check


def power_problem(spec: ExperimentSpec) -> str:
    """Return the reason why no verdict is possible with the plan's number of blocks; an empty text if one
    is.
    """
    family, alpha = hypotheses(spec), spec.analysis.alpha
    if not family:
        return ""
    one_sided = any(one.one_sided for one in family)
    blocks, resamples, enough = spec.blocks, spec.analysis.resamples, alpha / len(family)
    smallest = power.floor(blocks, one_sided, resamples)
    if smallest <= enough:
        return ""
    if power.floor(blocks, one_sided) <= enough:
        path, count = "spec.analysis.resamples", f"{resamples} resamples"
        needed = power.resamples_needed(alpha, len(family), one_sided)
    else:
        path, count = "spec.blocks", f"{blocks} blocks"
        needed = power.blocks_needed(alpha, len(family), one_sided)
    return (
        f"{path}: with {count} the smallest possible p-value is {smallest:.3g}, but {len(family)} hypotheses "
        f"at alpha {alpha:g} need {enough:.3g} (Holm): set {path.rpartition('.')[2]} to {needed} or more, or "
        "make fewer predictions"
    )


def problems(spec: ExperimentSpec) -> list[str]:
    """Return the reasons why a plan must not be registered, each with the path of its field."""
    return [*filter(None, [power_problem(spec)]), *plan_check.problems(spec)]


def spec_of(plan: Mapping[str, Any]) -> ExperimentSpec:
    """Return the spec of a plan document."""
    return ExperimentSpec.model_validate(plan["spec"])
