"""Plans an Experiment: one pure function makes every decision.

The status says which jobs may exist. It is stored before a job is created, and a job's result is in the
status before the job is deleted. So the next plan can continue after a crash between any two writes.
"""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.experiment import analysis, cleanup, registration, running, steps, tuning
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.plan import Plan
from convoy_crds.experiment_schedule import schedule
from convoy_crds.experiment_status import ExperimentPhase, PlanStatus
from convoy_crds.reasons.catalogue import Reasons


def plan(observed: Observed, now: datetime) -> Plan:
    """Return the plan for the observation at `now` (timezone-aware).

    The result depends only on the arguments.
    """
    experiment = observed.experiment
    if experiment.metadata.deletion_timestamp is not None:
        return Plan()
    draft = Draft(observed, now)
    if draft.status.plan is None:
        registration.fix(draft)
    elif not draft.ended:
        _advance(draft, draft.status.plan)
    if draft.ended:
        cleanup.all_runs(draft)
    return draft.plan()


def _advance(draft: Draft, plan: PlanStatus) -> None:
    """Go on with the registration, the tuning, the blocks or the analysis."""
    cleanup.replaced_attempts(draft)
    registration.keep_engines(draft)
    draft.edited = registration.is_edited(draft, plan)
    ready = registration.advance(draft, plan) and tuning.advance(draft)
    if ready and running.advance(draft, schedule(draft.spec)):
        analysis.advance(draft, plan)
    if not draft.ended:
        _show_obstacles(draft)


def _show_obstacles(draft: Draft) -> None:
    """Show that the spec or the API server keeps jobs from starting."""
    active = [one.name for one in draft.status.runs if not one.ended]
    if draft.edited:
        reason = Reasons.PLAN_EDITED
        draft.obstruct(reason, reason.format(hash=draft.plan_hash))
        return
    if draft.spec.suspend:
        reason = Reasons.RUNS_SUSPENDED
        draft.wait(ExperimentPhase.SUSPENDED, reason, reason.format(running=len(active)))
        return
    current = {*active, *(steps.name_of(draft, one) for one in draft.status.internal.steps)}
    for name in sorted(current & draft.observed.refused.keys()):
        reason, why = Reasons.JOB_REFUSED, draft.observed.refused[name].message
        draft.obstruct(reason, reason.format(job=name, why=why))
        return
