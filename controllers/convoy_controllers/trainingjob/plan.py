"""Plans a TrainingJob: one pure function makes every decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from convoy_controllers.children import Child, PatchStatus
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import active, finished, leaving, queued, queueing, suspended, workloads
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.terms import MANAGED_BY
from convoy_crds.trainingjob_status import TERMINAL


def plan(observed: Observed, now: datetime) -> Plan:
    """Return the plan for the observation at `now` (timezone-aware).

    The result depends only on the arguments.
    """
    job = observed.job
    if job.spec.managed_by not in (None, MANAGED_BY):
        return Plan()
    if job.metadata.deletion_timestamp is not None:
        return leaving.plan(observed)
    if job.status.phase in TERMINAL:
        return _with(finished.plan(observed, now), workloads.finished(observed, now))
    stop = queueing.stop(observed)
    if stop is not None or suspended.due(observed):
        changes = workloads.released(observed) if job.spec.suspend else workloads.children(observed, now)
        return _with(suspended.plan(observed, now, stop), changes)
    if (held := queueing.hold(observed)) is not None:
        return queued.plan(observed, held, now)
    made = active.plan(observed, now)
    return _with(made, workloads.children(observed, now, made.status))


def _with(made: Plan, changes: list[Child]) -> Plan:
    """Return a plan that also changes the job's Workloads. A patch that fails is tried again later."""
    if not changes or made.delete_parent:
        return made
    waits = [made.requeue_after, workloads.PATCH_SECONDS]
    retried = any(isinstance(one, PatchStatus) for one in changes)
    return replace(
        made,
        children=(*made.children, *changes),
        requeue_after=min(one for one in waits if one is not None) if retried else made.requeue_after,
    )
