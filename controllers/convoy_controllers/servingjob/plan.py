"""Plans a ServingJob: one pure function makes every decision."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.plan import Plan
from convoy_controllers.servingjob import active, leaving
from convoy_controllers.servingjob.observed import Observed
from convoy_crds.terms import MANAGED_BY


def plan(observed: Observed, now: datetime) -> Plan:
    """Return the plan for the observation at `now` (timezone-aware).

    The result depends only on the arguments.
    """
    job = observed.job
    if job.spec.managed_by not in (None, MANAGED_BY):
        return Plan()
    if job.metadata.deletion_timestamp is not None:
        return leaving.deleted(observed)
    if job.spec.suspend:
        return leaving.suspended(observed, now)
    return active.plan(observed, now)
