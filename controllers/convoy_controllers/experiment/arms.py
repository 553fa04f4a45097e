"""The runs of an Experiment's schedule, and the settings of the arm that each one runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment import Experiment, ExperimentSpec
from convoy_crds.experiment_arm import Arm, ArmType
from convoy_crds.experiment_plan import Perturbation
from convoy_crds.experiment_schedule import Block, combinations
from convoy_crds.experiment_status import TuningStatus
from convoy_crds.field_paths import with_value

Value = tuple[str, Any]
"""A field path, and the value to set there."""


@dataclass(frozen=True, slots=True)
class Run:
    """One arm's part of a block."""

    block: Block
    label: str
    """Name of the run in results: the arm, or the combination of a sweep."""
    arm: Arm

    @property
    def name(self) -> str:
        """Return the block and the arm in the form that names of jobs have."""
        return f"b{self.block.id}-{self.arm.name}"


def runs(spec: ExperimentSpec, block: Block) -> tuple[Run, ...]:
    """Return the runs of a block, in their order."""
    return tuple(
        Run(block, label, effective(spec, name)) for name, label in zip(block.arms, block.labels, strict=True)
    )


def effective(spec: ExperimentSpec, name: str) -> Arm:
    """Return an arm with the settings that its runs have. A NegativeControl has those of `controlOf`."""
    arm = next(one for one in spec.arms if one.name == name)
    base = _base(spec, arm)
    if base is arm:
        return arm
    shared = {field: getattr(base, field) for field in ("template", "simulation", "load")}
    return arm.model_copy(update=shared)


def tuned_arm(spec: ExperimentSpec, name: str) -> str:
    """Return the arm whose tuned values the arm `name` has."""
    return _base(spec, next(one for one in spec.arms if one.name == name)).name


def values(experiment: Experiment, run: Run) -> list[Value]:
    """Return the values that the tuning or the sweep sets in the arm of a run."""
    if experiment.spec.sweep is not None and run.block.combination is not None:
        parameters = experiment.spec.sweep.parameters
        chosen = combinations(parameters)[run.block.combination]
        return [(one.path, value) for one, value in zip(parameters, chosen, strict=True)]
    name = tuned_arm(experiment.spec, run.arm.name)
    return tuned_values(next((one for one in experiment.status.tuning if one.arm == name), None))


def tuned_values(tuning: TuningStatus | None) -> list[Value]:
    """Return the values that a tuning has chosen."""
    return [(one.path, json.loads(one.value)) for one in tuning.values] if tuning is not None else []


def settings(arm: Arm, chosen: list[Value]) -> Any:
    """Return the arm's settings with the chosen values: the parameters of a simulation, or the spec of a job.
    Raises InvalidFieldPath if they lack the field of a chosen value.
    """
    if arm.type is ArmType.SIMULATION:
        found: Any = dict(arm.simulation.params) if arm.simulation is not None else {}
        for path, value in chosen:
            found = with_value(found, path, value)
        return found
    template: Any = {"spec": dict(arm.template.spec) if arm.template is not None else {}}
    for path, value in chosen:
        template = with_value(template, path, value)
    return template["spec"]


def perturbation(spec: ExperimentSpec, block: Block) -> Perturbation | None:
    """Return the perturbation of a block; None under the unperturbed condition."""
    return next((one for one in spec.perturbations or () if one.name == block.cell.perturbation), None)


def engine_names(spec: ExperimentSpec) -> Iterator[tuple[str, str]]:
    """Yield the field path and the name of each Engine that the arms name."""
    for number, arm in enumerate(spec.arms):
        where, body = f"spec.arms[{number}].template.spec", arm.template.spec if arm.template else {}
        if arm.type is ArmType.TRAINING_JOB:
            yield from _engine(f"{where}.engine", body)
        for index, role in enumerate(_list(body.get("roles")) if arm.type is ArmType.SERVING_JOB else ()):
            yield from _engine(f"{where}.roles[{index}].engine", role)


def _engine(where: str, holder: Any) -> Iterator[tuple[str, str]]:
    named = holder.get("engine") if isinstance(holder, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if isinstance(name, str):
        yield f"{where}.name", name


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _base(spec: ExperimentSpec, arm: Arm) -> Arm:
    """Return the arm whose settings `arm` has: itself, or `controlOf` of a NegativeControl."""
    if arm.template is not None or arm.simulation is not None or arm.control_of is None:
        return arm
    return next((one for one in spec.arms if one.name == arm.control_of), arm)
