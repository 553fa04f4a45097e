"""Plans a TrainingJob: one pure function makes every decision."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import active, finished, leaving, suspended
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
        return finished.plan(observed, now)
    if suspended.due(observed):
        return suspended.plan(observed, now)
    return active.plan(observed, now)
