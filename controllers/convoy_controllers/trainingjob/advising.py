"""Checks a TrainingJob against the rules of advice, as `spec.lint` asks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convoy_controllers.advice import report
from convoy_controllers.advice.subject import Subject, Surroundings, of_training
from convoy_controllers.trainingjob import run_facts
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Phase

if TYPE_CHECKING:
    from convoy_controllers.trainingjob.status import Draft

_STARTS = (None, Phase.PENDING, Phase.SUSPENDED)
"""Phases from which a job may start."""


def set_condition(draft: Draft) -> None:
    """Set the condition Advice, and the findings and facts in the status. A condition that becomes True also
    becomes an Event.
    """
    observed, status, lint = draft.observed, draft.status, draft.observed.job.spec.lint
    if lint is None:
        draft.drop(ConditionType.ADVICE)
        status.advice, status.facts = [], None
        return
    status.facts = run_facts.merged(status.facts, status.incarnation, observed.slots, observed.pods)
    found = report.report(_subject(observed, draft), lint)
    status.advice = found.findings
    before = next((one for one in status.conditions if one.type == ConditionType.ADVICE), None)
    if found.holds and (before is None or before.status != "True"):
        draft.event(found.reason, found.message)
    draft.condition(ConditionType.ADVICE, found.holds, found.reason, found.message)


def denial(observed: Observed) -> Violation | None:
    """Return why the job must not start; None if it may, or if it has started.

    A job that restarts after a fault has started, so an edit of `spec.lint` does not stop it.
    """
    job = observed.job
    if job.spec.lint is None or job.status.phase not in _STARTS:
        return None
    return report.denial(_subject(observed), job.spec.lint)


def _subject(observed: Observed, draft: Draft | None = None) -> Subject:
    job, engine = observed.job, observed.engine
    if draft is not None:
        job = job.model_copy(update={"status": draft.status})
    engines = {engine.metadata.name: engine} if engine is not None else {}
    return of_training(job, Surroundings(engines=engines, similar=observed.similar))
