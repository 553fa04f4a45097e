"""Checks a ServingJob for errors that the schema cannot find. The job shows the first violation.

Running replicas of an older, valid revision go on serving while the spec is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from convoy_controllers.servingjob import advising, templates
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.engine import Engine
from convoy_crds.params import params_error, size_error
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.servingjob import ServingRole
from convoy_crds.suggest import engine_hint
from convoy_crds.terms import ENGINE_ACTIVATOR, ConditionType


def violation(observed: Observed) -> Violation | None:
    """Return the first violation; None if the job can run."""
    for check in CHECKS:
        if found := next(check(observed), None):
            return found
    return None


def _engines(observed: Observed) -> Iterator[tuple[str, ServingRole, Engine | None]]:
    """Yield the path, the role and the Engine of each role that names an engine."""
    for number, role in enumerate(observed.job.spec.roles):
        if role.engine is not None:
            yield f"spec.roles[{number}].engine", role, observed.engines.get(role.engine.name)


def _unknown_engine(observed: Observed) -> Iterator[Violation]:
    for path, role, engine in _engines(observed):
        if engine is None and role.engine:
            name = role.engine.name
            why = f"there is no Engine {name!r}{engine_hint(name, observed.known_engines)}"
            yield Violation(Reasons.UNKNOWN_ENGINE, f"{path}.name: {why}")


def _activator(observed: Observed) -> Iterator[Violation]:
    for path, role, _ in _engines(observed):
        if role.engine and role.engine.name == ENGINE_ACTIVATOR:
            why = (
                f"Engine {ENGINE_ACTIVATOR!r} is for Convoy's own pods; name the engine that serves the model"
            )
            yield _invalid(f"{path}.name", why)
    spec = observed.job.spec
    if spec.scales_to_zero and ENGINE_ACTIVATOR not in observed.engines:
        number = next(index for index, role in enumerate(spec.roles) if role.name == spec.serving_role)
        why = f"0 needs Engine {ENGINE_ACTIVATOR!r}, which does not exist; install it, or set 1"
        yield Violation(Reasons.UNKNOWN_ENGINE, f"spec.roles[{number}].scaling.minReplicas: {why}")


def _engine_not_ready(observed: Observed) -> Iterator[Violation]:
    for path, _, engine in _engines(observed):
        for condition in engine.status.conditions if engine else ():
            if condition.type == ConditionType.READY and condition.status == "False" and engine:
                why = f"Engine {engine.metadata.name!r} cannot be used: {condition.message}"
                yield Violation(Reasons.ENGINE_NOT_READY, f"{path}.name: {why}")


def _wrong_role_kind(observed: Observed) -> Iterator[Violation]:
    for path, _, engine in _engines(observed):
        if engine is not None and engine.spec.role_kind != "Serving":
            why = f"Engine {engine.metadata.name!r} is for {engine.spec.role_kind.lower()}, not for serving"
            yield Violation(Reasons.WRONG_ROLE_KIND, f"{path}.name: {why}; name a serving engine")


def _invalid_params(observed: Observed) -> Iterator[Violation]:
    for path, role, engine in _engines(observed):
        if engine is None or role.engine is None:
            continue
        if error := params_error(engine.spec.params_schema, role.engine.params):
            where = error[0].replace("spec.engine", path, 1)
            why = f"{where}: {error[1]}; see the parameters of Engine {engine.metadata.name!r}"
            yield Violation(Reasons.INVALID_PARAMS, why)


def _unknown_revision(observed: Observed) -> Iterator[Violation]:
    name = observed.job.spec.rollout.revision
    if name and all(one.name != name for one in observed.revisions):
        stored = sorted(observed.revisions, key=lambda one: one.number, reverse=True)
        known = ", ".join(one.name for one in stored) or "(none is stored yet)"
        why = f"there is no stored revision {name!r}; name one of: {known}; or remove the field"
        yield _invalid("spec.rollout.revision", why)


def _long_params(observed: Observed) -> Iterator[Violation]:
    for path, role, _ in _engines(observed):
        if role.engine is not None and (why := size_error(role.engine.params)):
            yield _invalid(f"{path}.params", why)


def _templates(observed: Observed) -> Iterator[Violation]:
    for found in templates.findings(observed.job):
        yield _invalid(found.path, found.why)


def _invalid(path: str, why: str, reason: Reason = Reasons.INVALID_SPEC) -> Violation:
    return Violation(reason, Reasons.INVALID_SPEC.format(path=path, why=why))


def _denied(observed: Observed) -> Iterator[Violation]:
    if (found := advising.denial(observed)) is not None:
        yield found


CHECKS: tuple[Callable[[Observed], Iterator[Violation]], ...] = (
    _unknown_engine,
    _activator,
    _engine_not_ready,
    _wrong_role_kind,
    _invalid_params,
    _unknown_revision,
    _long_params,
    _templates,
    _denied,
)
