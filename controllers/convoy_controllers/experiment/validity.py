"""Checks an Experiment for errors that the schema cannot find. It shows the first violation, and starts once
there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import rfc8785

from convoy_controllers.experiment import arms, sizes, storage, tuning
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.children import load_params, plan_engines, simulation_params, used_engines
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.experiment.spec_problems import spec_problems
from convoy_controllers.workers.violation import Violation
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_hash import canonical, plan_document
from convoy_crds.experiment_schedule import Cell, combination_count, schedule
from convoy_crds.experiment_status import MAX_BLOCKS, MAX_HYPOTHESES
from convoy_crds.field_paths import InvalidFieldPath
from convoy_crds.params import MAX_PARAMS, params_error
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.suggest import engine_hint
from convoy_crds.terms import ENGINE_LOAD, ENGINE_SIMULATION, ConditionType

MAX_PLAN_BYTES = 32 * 1024
"""Maximum size of a plan. It travels in the environment of a pod, together with the data of all blocks."""
_OWN_LOAD_PARAMS = frozenset({"url", "seed", "perturbation"})
"""Parameters of a load that the experiment sets."""


def violation(observed: Observed) -> Violation | None:
    """Return the first violation; None if the experiment can start."""
    for check in CHECKS:
        if found := next(check(observed), None):
            return found
    return None


def _store(observed: Observed) -> Iterator[Violation]:
    name, namespace = observed.experiment.spec.store, observed.experiment.metadata.namespace
    if observed.store is None:
        known = ", ".join(observed.known_stores) or "(there are none for this namespace yet)"
        why = f"there is no CheckpointStore {name!r}; create it or name one of: {known}"
        yield Violation(Reasons.UNKNOWN_STORE, f"spec.store: {why}")
    elif not observed.store.spec.allows(namespace):
        why = (
            f"CheckpointStore {name!r} does not allow jobs of namespace {namespace!r}; add the namespace to "
            "the store's spec.allowedNamespaces, or name another store"
        )
        yield Violation(Reasons.STORE_NOT_ALLOWED, f"spec.store: {why}")
    elif why := storage.problem(observed):
        yield Violation(Reasons.AWAITS_STORE, Reasons.AWAITS_STORE.format(name=name, why=why))


def _engines(observed: Observed) -> Iterator[Violation]:
    for name, path in used_engines(observed.experiment).items():
        engine = observed.engines.get(name)
        if engine is None:
            why = f"there is no Engine {name!r}{engine_hint(name, observed.engines)}"
            yield Violation(Reasons.UNKNOWN_ENGINE, f"{path}: {why}")
            return
        for condition in engine.status.conditions:
            if condition.type == ConditionType.READY and condition.status == "False":
                why = f"Engine {name!r} cannot be used: {condition.message}"
                yield Violation(Reasons.ENGINE_NOT_READY, f"{path}: {why}")


def _size(observed: Observed) -> Iterator[Violation]:
    spec = observed.experiment.spec
    if spec.sweep is not None:
        count = combination_count(spec.sweep.parameters) * spec.blocks
        if count > MAX_BLOCKS:
            why = f"combinations x blocks are {count}, but at most {MAX_BLOCKS} blocks fit: use fewer values"
            yield _invalid("spec.sweep.parameters", why)
    magnitudes = {one.name: len(one.magnitudes) for one in spec.perturbations or ()}
    hypotheses = sum(magnitudes.get(one.perturbation or "", 1) for one in spec.predictions or ())
    if hypotheses > MAX_HYPOTHESES:
        why = (
            f"predictions x magnitudes are {hypotheses}, but at most {MAX_HYPOTHESES} verdicts fit: leave "
            "out predictions or magnitudes"
        )
        yield _invalid("spec.predictions", why)
    engines = plan_engines(observed.experiment, observed.engines)
    document = plan_document(observed.experiment.metadata.name, observed.spec, engines)
    try:
        size = len(canonical(document))
    except rfc8785.CanonicalizationError as error:
        yield _invalid("spec", f"the plan has no canonical form (RFC 8785): {error}")
        return
    if size > MAX_PLAN_BYTES:
        why = f"the plan has {size} bytes as JSON, but at most {MAX_PLAN_BYTES} fit; keep data in files"
        yield _invalid("spec", why)
        return
    if (needed := sizes.analysis_size(spec, document)) > MAX_PARAMS:
        blocks = len(schedule(spec))
        why = (
            f"plan and results of {blocks} blocks may need {needed} bytes, but the analysis can get only "
            f"{MAX_PARAMS}: use fewer blocks, arms or outcomes, or a shorter plan"
        )
        yield _invalid("spec.blocks", why)


def _spec(observed: Observed) -> Iterator[Violation]:
    for path, why in spec_problems(observed.experiment.spec):
        yield _invalid(path, why)


def _tuning(observed: Observed) -> Iterator[Violation]:
    for number, arm in enumerate(observed.experiment.spec.arms):
        found = tuning.reused(observed, arm)
        if isinstance(found, str):
            yield _invalid(f"spec.arms[{number}].tuning.reuse", found)


def _paths(observed: Observed) -> Iterator[Violation]:
    """Yield the paths of tuned or swept values that do not fit their arm."""
    spec = observed.experiment.spec
    for number, arm in enumerate(spec.arms):
        taken = tuning.reused(observed, arm)
        chosen = [(one.path, None) for one in (arm.tuning.search if arm.tuning else None) or ()]
        if taken is not None and not isinstance(taken, str):
            chosen = [(one.path, None) for one in taken.values]
        where = f"spec.arms[{number}].tuning"
        if spec.sweep is not None:
            chosen, where = [(one.path, None) for one in spec.sweep.parameters], "spec.sweep.parameters"
        for one in chosen:
            try:
                arms.settings(arm, [one])
            except InvalidFieldPath as error:
                yield _invalid(where, f"path {one[0]!r} does not fit arm {arm.name!r}: {error}")


def _params(observed: Observed) -> Iterator[Violation]:
    """Yield parameters that do not fit the Engine of a simulation."""
    experiment = observed.experiment
    engine = observed.engines.get(ENGINE_SIMULATION)
    for run in _one_run_of_each_condition(experiment.spec):
        if run.arm.type is ArmType.SIMULATION and engine is not None:
            given = simulation_params(experiment, run, arms.settings(run.arm, arms.values(experiment, run)))
            if error := params_error(engine.spec.params_schema, given):
                number = [one.name for one in experiment.spec.arms].index(run.arm.name)
                path = error[0].replace("spec.engine", f"spec.arms[{number}].simulation", 1)
                why = f"{path}: {error[1]}; see the parameters of Engine {ENGINE_SIMULATION!r}"
                yield Violation(Reasons.INVALID_PARAMS, why)


def _one_run_of_each_condition(spec: ExperimentSpec) -> Iterator[Run]:
    """Yield a run of each arm under each condition."""
    seen: set[Cell] = set()
    for block in schedule(spec):
        if block.cell not in seen:
            seen.add(block.cell)
            yield from arms.runs(spec, block)


def _loads(observed: Observed) -> Iterator[Violation]:
    """Yield parameters of loads that do not fit the Engine, or that the experiment sets itself."""
    spec, engine = observed.experiment.spec, observed.engines.get(ENGINE_LOAD)
    block = schedule(spec)[0]
    for number, arm in enumerate(spec.arms):
        where = f"spec.arms[{number}].load"
        for field in _OWN_LOAD_PARAMS & (arm.load or {}).keys():
            yield _invalid(f"{where}.{field}", "the experiment sets this parameter; remove the field")
        if arm.load is not None and engine is not None:
            given = load_params(Run(block, arm.name, arm), "http://server:80")
            if error := params_error(engine.spec.params_schema, given):
                path = error[0].replace("spec.engine.params", where, 1)
                why = f"{path}: {error[1]}; see the parameters of Engine {ENGINE_LOAD!r}"
                yield Violation(Reasons.INVALID_PARAMS, why)


def _invalid(path: str, why: str) -> Violation:
    return Violation(Reasons.INVALID_SPEC, Reasons.INVALID_SPEC.format(path=path, why=why))


CHECKS: tuple[Callable[[Observed], Iterator[Violation]], ...] = (
    _size,
    _spec,
    _engines,
    _store,
    _tuning,
    _paths,
    _params,
    _loads,
)
