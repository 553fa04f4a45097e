"""Errors of a plan that its own fields show, without a cluster. The schema cannot find them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import rfc8785

from convoy_controllers.experiment import targets
from convoy_controllers.experiment.targets import Problem
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import ArmType, SweepParameter
from convoy_crds.experiment_hash import canonical
from convoy_crds.perturbations import Backend, perturbation_type

_BACKENDS = {
    ArmType.SIMULATION: frozenset({Backend.SIMULATION}),
    ArmType.TRAINING_JOB: frozenset({Backend.AGENT}),
    ArmType.SERVING_JOB: frozenset({Backend.AGENT, Backend.LOAD}),
}
"""Backends that can disturb the runs of each type of arm."""


def spec_problems(spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield the path of each wrong field, and the reason."""
    yield from _perturbations(spec)
    yield from targets.problems(spec)
    yield from _templates(spec)
    parameters = spec.sweep.parameters if spec.sweep is not None else ()
    for number, one in enumerate(parameters):
        yield from _values(f"spec.sweep.parameters[{number}].values", one)
    for (_, first), (number, second) in combinations(enumerate(parameters), 2):
        yield from _clash(f"spec.sweep.parameters[{number}]", first, second)


def _perturbations(spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield the perturbations that no part of Convoy can inject into runs of an arm."""
    for number, one in enumerate(spec.perturbations or ()):
        known = perturbation_type(one.kind).backends
        for arm in spec.arms:
            if not known & _BACKENDS[arm.type]:
                able = " or ".join(kind.value for kind, usable in _BACKENDS.items() if known & usable)
                why = (
                    f"{one.kind.value} cannot disturb arm {arm.name!r} of type {arm.type.value}"
                    f"{f'; it is for arms of type {able}' if able else ', nor any other arm'}"
                )
                yield f"spec.perturbations[{number}].kind", why


def _templates(spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield fields of templates that would keep a run from ending."""
    for number, arm in enumerate(spec.arms):
        body, where = (arm.template.spec if arm.template else {}), f"spec.arms[{number}].template.spec"
        if body.get("suspend"):
            yield f"{where}.suspend", "a suspended job never ends; remove the field"
        for field in ("managedBy", "ttlSecondsAfterFinished"):
            if body.get(field) is not None:
                why = "the experiment creates and deletes the job itself; remove the field"
                yield f"{where}.{field}", why


def _values(path: str, parameter: SweepParameter) -> Iterator[Problem]:
    """Yield values that occur twice: 40 and 40.0 are one JSON number, and would run the same job twice."""
    seen: set[bytes] = set()
    for number, value in enumerate(parameter.values):
        try:
            same = canonical([value])
        except rfc8785.CanonicalizationError:
            continue  # The check of the whole plan names the value.
        if same in seen:
            yield f"{path}[{number}]", f"{value!r} occurs twice; spec.blocks repeats each combination"
        seen.add(same)


def _clash(path: str, first: SweepParameter, second: SweepParameter) -> Iterator[Problem]:
    """Yield a name that two parameters of a sweep share, and a field that both would set."""
    if second.name == first.name:
        why = f"{second.name!r} is also the name of another parameter; give each parameter its own"
        yield f"{path}.name", why
    if second.path == first.path:
        why = f"{second.path!r} is also the path of another parameter; give each parameter its own"
        yield f"{path}.path", why
    elif f"{second.path}.".startswith(f"{first.path}.") or f"{first.path}.".startswith(f"{second.path}."):
        why = f"{second.path!r} and {first.path!r} of another parameter would overwrite each other"
        yield f"{path}.path", why
