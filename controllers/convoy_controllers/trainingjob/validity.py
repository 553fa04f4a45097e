"""Checks a job for errors that the schema cannot find. The checks run in order, and the job shows the first
violation.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from convoy_controllers.launching.jobs import misfits
from convoy_controllers.trainingjob import advising
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.templates import clashes, forbidden_root
from convoy_controllers.workers.violation import Violation
from convoy_crds.engine import Engine
from convoy_crds.layout import command, first_slots
from convoy_crds.params import params_error, size_error
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.suggest import engine_hint
from convoy_crds.terms import ConditionType

MAX_COMMAND = 128 * 1024
"""Maximum length of a command as JSON, in bytes."""


def _named_engine(observed: Observed) -> Engine | None:
    return observed.engine if observed.job.spec.engine else None


def unknown_engine(observed: Observed) -> Violation | None:
    """Return a violation if the named Engine does not exist. The job continues once the Engine is created."""
    named = observed.job.spec.engine
    if named is None or observed.engine is not None:
        return None
    hint = engine_hint(named.name, observed.known_engines)
    return Violation(Reasons.UNKNOWN_ENGINE, Reasons.UNKNOWN_ENGINE.format(name=named.name, hint=hint))


def engine_not_ready(observed: Observed) -> Violation | None:
    """Return a violation if the Engine itself is invalid, according to its Ready condition."""
    engine = _named_engine(observed)
    if engine is None:
        return None
    for condition in engine.status.conditions:
        if condition.type == ConditionType.READY and condition.status == "False":
            reason = Reasons.ENGINE_NOT_READY
            return Violation(reason, reason.format(name=engine.metadata.name, why=condition.message))
    return None


def wrong_role_kind(observed: Observed) -> Violation | None:
    """Return a violation if the Engine is for serving, because the job trains."""
    engine = _named_engine(observed)
    if engine is None or engine.spec.role_kind == "Training":
        return None
    reason = Reasons.WRONG_ROLE_KIND
    return Violation(reason, reason.format(name=engine.metadata.name, role_kind=engine.spec.role_kind))


def invalid_params(observed: Observed) -> Violation | None:
    """Return a violation if the parameters do not fit the Engine's schema."""
    engine, named = _named_engine(observed), observed.job.spec.engine
    if engine is None or named is None:
        return None
    error = params_error(engine.spec.params_schema, named.params)
    if error is None:
        return None
    path, why = error
    reason = Reasons.INVALID_PARAMS
    return Violation(reason, reason.format(path=path, why=why, name=named.name))


def unknown_store(observed: Observed) -> Violation | None:
    """Return a violation if the named CheckpointStore does not exist. The job continues after the store is
    created.
    """
    named = observed.job.spec.checkpoint.tiers.store
    if named is None or observed.store is not None:
        return None
    known = ", ".join(sorted(observed.known_stores)) or "(there are none for this namespace yet)"
    return Violation(Reasons.UNKNOWN_STORE, Reasons.UNKNOWN_STORE.format(name=named, known=known))


def store_not_allowed(observed: Observed) -> Violation | None:
    """Return a violation if the CheckpointStore does not allow jobs of this namespace. The job continues
    after the store allows them.
    """
    namespace, store = observed.job.metadata.namespace, observed.store
    named = observed.job.spec.checkpoint.tiers.store
    if named is None or store is None or store.spec.allows(namespace):
        return None
    reason = Reasons.STORE_NOT_ALLOWED
    return Violation(reason, reason.format(name=named, namespace=namespace))


def unknown_source(observed: Observed) -> Violation | None:
    """Return a violation if the job to resume from does not exist, or has no checkpoint in the same store.
    The job continues when that job has a checkpoint.

    A job that has formed an incarnation resumes from its own checkpoints. The other job may then be
    deleted.
    """
    wanted, status = observed.job.spec.checkpoint, observed.job.status
    if wanted.resume_from is None or wanted.resume_from.job is None or status.incarnation:
        return None
    source, reason = observed.source, Reasons.NOTHING_TO_RESUME
    point = source.status.checkpoint if source is not None else None
    if source is None:
        why = "there is no such job (set resumeFrom.uid to resume from a deleted job)"
    elif source.spec.checkpoint.tiers.store != wanted.tiers.store:
        why = f"that job does not save to CheckpointStore {wanted.tiers.store!r}, which this job uses"
    elif point is None or point.watermarks.remote is None:
        why = "that job has no checkpoint in the store yet"
    else:
        return None
    return Violation(reason, reason.format(name=wanted.resume_from.job, why=why))


def long_command(observed: Observed) -> Violation | None:
    """Return a violation if the command is longer than agents accept
    (convoy_agents.pods.assignment.MAX_COMMAND).
    """
    job, firsts = observed.job, first_slots(observed.job)
    for index, role in enumerate(job.spec.roles):
        words = command(job, observed.engine, firsts[role.name])
        size = len(json.dumps(words, ensure_ascii=False).encode())
        if size > MAX_COMMAND:
            why = f"{size} bytes with its arguments, more than {MAX_COMMAND} bytes; put data into a file"
            path = f"spec.roles[{index}].template.spec.containers[0].command"
            return _invalid(path, why)
    return None


def long_params(observed: Observed) -> Violation | None:
    """Return a violation if the parameters do not fit into the environment of a pod."""
    named = observed.job.spec.engine
    why = size_error(named.params) if named is not None else ""
    return _invalid("spec.engine.params", why) if why else None


def misfitting_command(observed: Observed) -> Violation | None:
    """Return a violation if the launcher in the command would reject its arguments, or if the job's pods
    would not form one process group.
    """
    found = next(misfits(observed.job, observed.engine), None)
    if found is None:
        return None
    reason = Reasons.INVALID_SPEC if found.refused else Reasons.SPLIT_GROUP
    return Violation(reason, reason.format(path=found.path, why=found.why))


def root_forbidden(observed: Observed) -> Violation | None:
    """Return a violation if a container asks for root although Convoy's default makes the kubelet reject
    root.
    """
    found = next(forbidden_root(observed.job), None)
    if found is None:
        return None
    return Violation(Reasons.INVALID_SPEC, Reasons.INVALID_SPEC.format(path=found.path, why=found.why))


def clashing_template(observed: Observed) -> Violation | None:
    """Return a violation if a template uses a volume name or mount path that is reserved for Convoy."""
    found = next(clashes(observed.job), None)
    return _invalid(found.path, found.why) if found else None


def refused_template(observed: Observed) -> Violation | None:
    """Return a violation if the API server's dry run rejected a pod because of a field of its template."""
    found = next((one for one in observed.create_errors.values() if one.path), None)
    return _invalid(found.path, found.message) if found else None


def _invalid(path: str, why: str) -> Violation:
    return Violation(Reasons.INVALID_SPEC, Reasons.INVALID_SPEC.format(path=path, why=why))


CHECKS: tuple[Callable[[Observed], Violation | None], ...] = (
    unknown_engine,
    engine_not_ready,
    wrong_role_kind,
    invalid_params,
    unknown_store,
    store_not_allowed,
    unknown_source,
    long_command,
    long_params,
    misfitting_command,
    root_forbidden,
    clashing_template,
    refused_template,
    advising.denial,
)


def violation(observed: Observed) -> Violation | None:
    """Return the first violation; None if the job can run."""
    for check in CHECKS:
        if found := check(observed):
            return found
    return None
