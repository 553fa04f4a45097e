"""Checks a job against the rules of advice, as `spec.lint` asks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convoy_controllers.advice.registry import denied, findings
from convoy_controllers.advice.subject import Subject, Surroundings, of_training
from convoy_controllers.trainingjob import run_facts
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.advice import MAX_FINDINGS, AdviceFinding, Enforce, Severity
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.summaries import shorten_list
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Phase

if TYPE_CHECKING:
    from convoy_controllers.trainingjob.status import Draft

MAX_NAMES = 8
"""Maximum number of findings that the condition names. `status.advice` explains them."""
_STARTS = (None, Phase.PENDING, Phase.SUSPENDED)
"""Phases from which a job may start."""


def set_condition(draft: Draft) -> None:
    """Set the condition Advice, and the findings and facts in the status. A condition that becomes True also
    becomes an Event.
    """
    status, lint = draft.status, draft.observed.job.spec.lint
    if lint is None:
        draft.drop(ConditionType.ADVICE)
        status.advice, status.facts = [], None
        return
    observed = draft.observed
    status.facts = run_facts.merged(status.facts, status.incarnation, observed.slots, observed.pods)
    found = findings(_subject(observed, draft), lint.ignore)
    status.advice = found[:MAX_FINDINGS]
    warnings = sum(one.severity is Severity.WARNING for one in found)
    facts = {"warnings": warnings, "hints": len(found) - warnings, "findings": _named(found)}
    reason = Reasons.RULES_VIOLATED if warnings else Reasons.HINTS_ONLY if found else Reasons.RULES_KEPT
    before = next((one for one in status.conditions if one.type == ConditionType.ADVICE), None)
    message = reason.format(**facts)
    if warnings and (before is None or before.status != "True"):
        draft.event(reason, message)
    draft.condition(ConditionType.ADVICE, bool(warnings), reason, message)


def denial(observed: Observed) -> Violation | None:
    """Return why the job must not start; None if it may, or if it has started.

    A job that restarts after a fault has started, so an edit of `spec.lint` does not stop it.
    """
    job = observed.job
    if job.spec.lint is None or job.spec.lint.enforce is not Enforce.DENY or job.status.phase not in _STARTS:
        return None
    found = next(iter(denied(_subject(observed), job.spec.lint.ignore)), None)
    if found is None:
        return None
    reason, facts = Reasons.ADVICE_DENIED, found.to_dict()
    return Violation(reason, reason.format(**facts))


def _subject(observed: Observed, draft: Draft | None = None) -> Subject:
    job, engine = observed.job, observed.engine
    if draft is not None:
        job = job.model_copy(update={"status": draft.status})
    engines = {engine.metadata.name: engine} if engine is not None else {}
    return of_training(job, Surroundings(engines=engines, similar=observed.similar))


def _named(found: list[AdviceFinding]) -> str:
    """Return the rules with the fields that violate them."""
    return shorten_list([f"{one.rule} {one.path}" for one in found], MAX_NAMES)
