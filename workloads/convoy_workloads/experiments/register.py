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
    if power.floor(spec.blocks, one_sided) <= alpha / len(family):
        return ""
    needed = power.blocks_needed(alpha, len(family), one_sided)
    return (
        f"spec.blocks: with {spec.blocks} blocks the smallest possible p-value is "
        f"{power.floor(spec.blocks, one_sided):.3g}, but {len(family)} hypotheses at alpha {alpha:g} need "
        f"{alpha / len(family):.3g} (Holm): set blocks to {needed} or more, or make fewer predictions"
    )


def problems(spec: ExperimentSpec) -> list[str]:
    """Return the reasons why a plan must not be registered, each with the path of its field."""
    return [*filter(None, [power_problem(spec)]), *plan_check.problems(spec)]


def spec_of(plan: Mapping[str, Any]) -> ExperimentSpec:
    """Return the spec of a plan document."""
    return ExperimentSpec.model_validate(plan["spec"])
