"""Checks the simulations of an Experiment before its first run. The schema of the kind cannot find their
errors, because it does not know the simulators.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import Arm, ArmType, Simulation, SweepParameter, TunedParameter
from convoy_crds.experiment_schedule import combinations
from convoy_crds.experiment_status import TuningStatus
from convoy_crds.field_paths import InvalidFieldPath, value_at, with_value
from convoy_crds.suggest import suggestion
from convoy_workloads.simulators.run import find, parsed
from convoy_workloads.simulators.simulator import InvalidSimulation, Simulator
from convoy_workloads.simulators.tuning import extreme_values, first_value, range_error


def problems(spec: ExperimentSpec, tuning: Sequence[TuningStatus] = ()) -> list[str]:
    """Return the errors in the simulations of a plan, each with the path of its field. `tuning`: tuned values
    that arms have taken over from other experiments.
    """
    found: list[str] = []
    taken = {one.arm: one for one in tuning}
    for number, arm in enumerate(spec.arms):
        if arm.type is ArmType.SIMULATION and arm.simulation is not None:
            where = f"spec.arms[{number}].simulation"
            try:
                simulator = find(arm.simulation.simulator)
            except InvalidSimulation as error:
                found.append(f"{where}.{error}")
                continue
            search = (arm.tuning.search if arm.tuning else None) or []
            wrong = [*filter(None, map(range_error, search)), *_repeated(search)]
            found.extend(f"spec.arms[{number}].tuning.search: {error}" for error in wrong)
            if arm.name in taken:
                found.extend(_reuse_errors(simulator, arm.simulation, taken[arm.name], number))
            elif not wrong:
                found.extend(_params(spec, arm, arm.simulation, where))
                ranges = _ranges(simulator, search, arm, arm.simulation)
                found.extend(f"spec.arms[{number}].tuning.search: {error}" for error in ranges)
            found.extend(_perturbations(spec, arm, simulator))
            found.extend(_outcomes(spec, arm, simulator))
    return list(dict.fromkeys(found))


def _params(spec: ExperimentSpec, arm: Arm, simulation: Simulation, where: str) -> Iterator[str]:
    """Yield errors in the parameters of an arm, and in the paths of tuned and swept ones."""
    swept = spec.sweep.parameters if spec.sweep is not None else ()
    try:
        params = _first_values(arm, simulation.params)
        runs = [
            (_described(swept, chosen), _with_swept(params, swept, chosen)) for chosen in combinations(swept)
        ]
    except InvalidFieldPath as error:
        yield f"{where}.params.{error}"
        return
    errors: dict[str, str] = {}
    for combination, of_run in runs:
        try:
            parsed(find(simulation.simulator).params, of_run, f"{where}.params")
        except InvalidSimulation as error:
            errors.setdefault(str(error), combination)
    yield from (error + combination for error, combination in errors.items())


def _reuse_errors(
    simulator: Simulator, simulation: Simulation, tuning: TuningStatus, number: int
) -> Iterator[str]:
    """Yield errors in the parameters of an arm with the values that it has taken over."""
    where, params = f"spec.arms[{number}].tuning.reuse", simulation.params
    try:
        for one in tuning.values:
            params = with_value(params, one.path, json.loads(one.value))
        parsed(simulator.params, params, "params")
    except (InvalidFieldPath, InvalidSimulation) as error:
        shown = ", ".join(f"{one.path}={one.value}" for one in tuning.values)
        yield f"{where}: with the values {shown}: {error}"


def _repeated(search: Sequence[TunedParameter]) -> Iterator[str]:
    """Yield paths that two parameters of a tuning share."""
    paths = [one.path for one in search]
    for path in dict.fromkeys(paths):
        if paths.count(path) > 1:
            yield f"{path}: two parameters have this path; remove one"


def _ranges(
    simulator: Simulator, search: Sequence[TunedParameter], arm: Arm, simulation: Simulation
) -> Iterator[str]:
    """Yield values of a range that the simulator refuses. Each trial with such a value would be wasted, so
    this arm would have a smaller budget than the others.
    """
    try:
        params = _first_values(arm, simulation.params)
        parsed(simulator.params, params, "params")
    except (InvalidFieldPath, InvalidSimulation):
        return  # The parameters themselves are wrong, which is reported already.
    for one in search:
        for value in extreme_values(one):
            try:
                parsed(simulator.params, with_value(params, one.path, value), "params")
            except InvalidSimulation as error:
                field, _, why = str(error).partition(": ")
                # Other errors, such as those of two fields together, depend on the rest of the trial.
                if field.rpartition(".")[2] == one.path.rpartition(".")[2]:
                    yield f"{one.path}: the simulator refuses the value {value!r}: {why}"


def _first_values(arm: Arm, params: Any) -> Any:
    """Return the parameters with the first value of each tuned parameter that has none. Raises
    InvalidFieldPath if a tuned parameter does not exist.
    """
    for search in (arm.tuning.search if arm.tuning else None) or ():
        # Also a path that has a value is tried, to find whether the tuning can set it.
        tried = with_value(params, search.path, first_value(search))
        params = tried if value_at(params, search.path) is None else params
    return params


def _with_swept(params: Any, swept: Sequence[SweepParameter], chosen: Sequence[Any]) -> Any:
    """Return the parameters of one combination of a sweep. Raises InvalidFieldPath if a swept parameter does
    not exist.
    """
    for one, value in zip(swept, chosen, strict=True):
        params = with_value(params, one.path, value)
    return params


def _described(swept: Sequence[SweepParameter], chosen: Sequence[Any]) -> str:
    """Return the values of a combination for a message; empty without a sweep."""
    values = ", ".join(f"{one.name}={value!r}" for one, value in zip(swept, chosen, strict=True))
    return f" (sweep: {values})" if swept else ""


def _perturbations(spec: ExperimentSpec, arm: Arm, simulator: Simulator) -> Iterator[str]:
    for number, one in enumerate(spec.perturbations or ()):
        if one.kind not in simulator.perturbations:
            known = ", ".join(sorted(simulator.perturbations))
            yield (
                f"spec.perturbations[{number}].kind: simulator {simulator.name} of arm {arm.name!r} cannot "
                f"inject {one.kind}; it knows {known}"
            )


def _outcomes(spec: ExperimentSpec, arm: Arm, simulator: Simulator) -> Iterator[str]:
    for number, outcome in enumerate(spec.outcomes):
        name = outcome.source.metric
        if name is not None and name not in simulator.figures:
            yield (
                f"spec.outcomes[{number}].source.metric: simulator {simulator.name} of arm {arm.name!r} has "
                f"no figure {name!r}{suggestion(name, simulator.figures)}"
            )
