"""Runs a simulator by name, after it has checked the parameters and the perturbation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from convoy_crds.meta import Model
from convoy_crds.suggest import suggestion
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.registry import SIMULATORS
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome, Simulator

M = TypeVar("M", bound=Model)


def find(name: str) -> Simulator:
    """Return a simulator. Raises InvalidSimulation if there is none of this name."""
    known = {one.name: one for one in SIMULATORS}
    if name not in known:
        raise InvalidSimulation(f"simulator: there is no simulator {name!r}{suggestion(name, known)}")
    return known[name]


def run(name: str, params: Mapping[str, Any], seed: int, perturbation: Perturbation | None = None) -> Outcome:
    """Run a simulator once and return its figures. Raises InvalidSimulation for invalid input."""
    simulator = find(name)
    check_perturbation(simulator, perturbation)
    outcome = simulator.run(parsed(simulator.params, params, "params"), seed, perturbation)
    if wrong := [figure for figure, value in outcome.figures.items() if not math.isfinite(value)]:
        raise InvalidSimulation(f"simulator {name} gives no finite value for {', '.join(wrong)}")
    return outcome


def check_perturbation(simulator: Simulator, perturbation: Perturbation | None) -> None:
    """Raise InvalidSimulation if the simulator cannot inject the perturbation."""
    if perturbation is not None and perturbation.kind not in simulator.perturbations:
        raise InvalidSimulation(
            f"perturbation.kind: simulator {simulator.name} cannot inject {perturbation.kind}; "
            f"it knows {', '.join(sorted(simulator.perturbations))}"
        )


def parsed(model: type[M], body: Mapping[str, Any], where: str) -> M:
    """Return the parameters in a simulator's form. Raises InvalidSimulation with the path of each error."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = [
            f"{'.'.join([where, *map(str, one['loc'])])}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        ]
        raise InvalidSimulation("; ".join(found)) from error
