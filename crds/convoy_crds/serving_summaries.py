"""Texts about a ServingJob that the command line and the dashboard share."""

from __future__ import annotations

from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import ConditionType

_BAD_WHEN_TRUE = frozenset({ConditionType.DEGRADED, ConditionType.STRAGGLER_DETECTED, ConditionType.ADVICE})


def is_unwanted(job: ServingJob, condition: Condition) -> bool:
    """Return True if the condition has a value that the owner of the job does not want."""
    if job.spec.suspend or condition.type == ConditionType.SUSPENDED:
        return False
    if condition.type == ConditionType.SCALING_LIMITED:
        return condition.reason == Reasons.TOO_MANY_REPLICAS.name
    return condition.status == ("True" if condition.type in _BAD_WHEN_TRUE else "False")
