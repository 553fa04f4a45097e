"""Counts the rollouts of ServingJobs that ended or halted, and the restarts of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.plan import Plan
from convoy_crds import servingjob
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics

RESULTS = {
    Reasons.ROLLOUT_COMPLETE.name: "complete",
    Reasons.REVISION_FAILED.name: "halted",
    Reasons.PROGRESS_DEADLINE.name: "halted",
}
"""Result of a rollout, by reason of the condition Progressing."""


class ServingMeter:
    """Counts what a plan's status reports, once that status is stored."""

    def __init__(self, metrics: Metrics, cache: ClusterCache) -> None:
        self._metrics = metrics
        self._before: dict[str, Mapping[str, Any]] = {}
        """The status before the write that is under way, by uid of the job."""
        cache.objects(servingjob.KIND).listen(self._changed)

    def before_status_write(self, job: CachedObject, plan: Plan) -> None:
        """Remember the stored status. The change is counted when the fresh status arrives in the cache."""
        if counted(job.status, plan.status or {}) != (None, 0):
            self._before[job.uid] = job.status

    def after_reconcile(self, job: CachedObject) -> None:
        """Do nothing, because changes are counted when the stored status arrives in the cache."""

    def _changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._before.pop(before.uid, None)
        if after is None or (known := self._before.get(after.uid)) is None:
            return
        result, restarts = counted(known, after.status)
        if result is not None or restarts:
            del self._before[after.uid]
        if result is not None:
            self._metrics.serving_rollouts.labels(result).inc()
        self._metrics.serving_restarts.inc(restarts)


def counted(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str | None, int]:
    """Return the result of a rollout that ended or halted between two statuses, and the number of counted
    restarts. The first rollout of a job counts too.
    """
    was, now = _progressing(before), _progressing(after)
    result = RESULTS.get(now) if now != was else None
    known = {(one["role"], one["number"]): set(one.get("times") or ()) for one in _groups(before)}
    restarts = sum(
        len(set(one.get("times") or ()) - known.get((one["role"], one["number"]), set()))
        for one in _groups(after)
    )
    return result, restarts


def _progressing(status: Mapping[str, Any]) -> str:
    conditions = status.get("conditions") or ()
    return next((one["reason"] for one in conditions if one["type"] == ConditionType.PROGRESSING), "")


def _groups(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((status.get("internal") or {}).get("groups") or ())
