"""Fixes the plan of an Experiment, and writes it to the store before the first run."""

from __future__ import annotations

import json
from typing import Any

from convoy_controllers.experiment import blocks, checks, steps, storage, tuning, validity
from convoy_controllers.experiment.children import plan_engines
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import PLAN_STEP
from convoy_crds.experiment import MUTABLE, ExperimentSpec
from convoy_crds.experiment_hash import canonical, plan_document, plan_hash
from convoy_crds.experiment_schedule import schedule
from convoy_crds.experiment_status import ExperimentPhase, PlanStatus, StepRecord
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ENGINE_ANALYSIS, ConditionType


def registered_plan(plan: PlanStatus) -> dict[str, Any]:
    """Return the plan document as it was registered."""
    found: dict[str, Any] = json.loads(plan.document)
    return found


def fix(draft: Draft) -> None:
    """Check the spec. If it is valid, fix the plan and its hash in the status."""
    draft.status_first = False
    found = validity.violation(draft.observed)
    if found is None:
        checks.send(draft)
        found = checks.violation(draft.observed)
    if found is not None:
        draft.condition(ConditionType.VALID, False, found.reason, found.message)
        draft.wait(ExperimentPhase.PENDING, found.reason, found.message)
        return
    registered = plan_engines(draft.experiment, draft.observed.engines)
    draft.condition(ConditionType.VALID, True, Reasons.ACCEPTED, Reasons.ACCEPTED.message)
    document = plan_document(draft.name, draft.observed.spec, registered)
    draft.status.plan = PlanStatus(
        hash=plan_hash(document), engines=registered, document=canonical(document).decode()
    )
    draft.status.start_time = draft.now
    draft.status.tuning = list(tuning.all_reused(draft.observed))
    blocks.summarize(draft, schedule(draft.spec))
    message = Reasons.PLAN_KEPT.message
    draft.condition(ConditionType.PLAN_KEPT, True, Reasons.PLAN_KEPT, message)
    _show(draft)
    draft.requeue(0)


def advance(draft: Draft, plan: PlanStatus) -> bool:
    """Let the analysis engine write the plan to the store, and compare its hash with the operator's. Return
    True once the plan is registered.
    """
    if plan.registered_at is not None:
        return True
    if not storage.ready(draft, ExperimentPhase.REGISTERING):
        return False
    taken_over = [one.to_dict() for one in draft.status.tuning]
    params = {"action": "register", "plan": registered_plan(plan), "tuning": taken_over}
    end = steps.advance(draft, PLAN_STEP, ENGINE_ANALYSIS, params)
    if end is None:
        _show(draft)
        return False
    theirs = end.result.get("planHash")
    if end.failure:
        _fail(draft, Reasons.REGISTRATION_FAILED.format(job=end.job, why=end.failure))
    elif theirs != plan.hash:
        reason = Reasons.PLAN_MISMATCH
        message = reason.format(job=end.job, theirs=str(theirs)[:80], ours=plan.hash)
        draft.condition(ConditionType.REGISTERED, False, reason, message)
        draft.end(ExperimentPhase.FAILED, reason, message)
    else:
        plan.registered_at = draft.now
        reason = Reasons.PLAN_REGISTERED
        message = reason.format(store=draft.spec.store, hash=plan.hash)
        draft.condition(ConditionType.REGISTERED, True, reason, message)
        draft.event(reason, message)
    return plan.registered_at is not None


def keep_engines(draft: Draft) -> None:
    """Set the condition PlanKept to False once an Engine has another image than in the plan. It then stays
    False, because blocks may have run with that image.
    """
    plan = draft.status.plan
    kept = next((one for one in draft.status.conditions if one.type == ConditionType.PLAN_KEPT), None)
    if plan is None or kept is None or kept.status == "False":
        return
    for one in plan.engines:
        found = draft.observed.engines.get(one.name)
        if found is not None and found.spec.image != one.image:
            reason, done = Reasons.ENGINE_CHANGED, len(draft.status.blocks)
            facts = {"name": one.name, "now": found.spec.image, "planned": one.image, "done": done}
            draft.condition(ConditionType.PLAN_KEPT, False, reason, reason.format(**facts))
            draft.event(reason, reason.format(**facts))
            return


def is_edited(draft: Draft, plan: PlanStatus) -> bool:
    """Return True if the spec is not the registered one. The API server refuses most edits, but cannot see
    all changes inside of templates and parameters.

    A field that is absent from the plan has its default. So a field that a later version of the kind adds
    is no edit.
    """
    registered = ExperimentSpec.model_validate(registered_plan(plan)["spec"])
    mutable = {field: getattr(draft.spec, field) for field in MUTABLE}
    return registered.model_copy(update=mutable) != draft.spec


def _show(draft: Draft) -> None:
    record = steps.record_of(draft, PLAN_STEP) or StepRecord(name=PLAN_STEP, attempt=1)
    job = steps.name_of(draft, record)
    reason = Reasons.REGISTERING_PLAN
    message = reason.format(job=job, store=draft.spec.store)
    draft.condition(ConditionType.REGISTERED, False, reason, message)
    draft.progress(ExperimentPhase.REGISTERING, reason, message)


def _fail(draft: Draft, message: str) -> None:
    draft.condition(ConditionType.REGISTERED, False, Reasons.REGISTRATION_FAILED, message)
    draft.end(ExperimentPhase.FAILED, Reasons.REGISTRATION_FAILED, message)
