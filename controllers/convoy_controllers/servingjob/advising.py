"""Checks a ServingJob against the rules of advice, as `spec.lint` asks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convoy_controllers.advice import report
from convoy_controllers.advice.subject import Subject, Surroundings, of_serving, of_training
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.terms import ConditionType

if TYPE_CHECKING:
    from convoy_controllers.servingjob.draft import Draft


def set_condition(draft: Draft) -> None:
    """Set the condition Advice, and the findings in the status."""
    status, lint = draft.status, draft.observed.job.spec.lint
    if lint is None:
        draft.drop(ConditionType.ADVICE)
        status.advice = []
        return
    found = report.report(_subject(draft.observed), lint)
    status.advice = found.findings
    draft.condition(ConditionType.ADVICE, found.holds, found.reason, found.message)


def denial(observed: Observed) -> Violation | None:
    """Return why no replica of this spec may start; None if they may. Replicas of a stored spec go on."""
    lint = observed.job.spec.lint
    return report.denial(_subject(observed), lint) if lint is not None else None


def _subject(observed: Observed) -> Subject:
    source = observed.source
    engines = observed.engines
    followed = of_training(source, Surroundings(engines=engines)) if source is not None else None
    return of_serving(observed.job, Surroundings(engines=engines, followed=followed))
