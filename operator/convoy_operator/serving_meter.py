"""Counts the rollouts of ServingJobs that ended or halted, the restarts of replicas, and the decisions of the
autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from convoy_controllers.cached import CachedObject
from convoy_controllers.plan import Plan
from convoy_controllers.servingjob.scaling.memory import Memories
from convoy_crds import servingjob
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

RESULTS = {
    Reasons.ROLLOUT_COMPLETE.name: "complete",
    Reasons.REVISION_FAILED.name: "halted",
    Reasons.PROGRESS_DEADLINE.name: "halted",
}
"""Result of a rollout, by reason of the condition Progressing."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The countable differences between two statuses of a ServingJob."""

    rollout: str | None = None
    """Result of a rollout that ended or halted; None if there was none. The first rollout counts too."""
    restarts: int = 0
    """Number of counted restarts."""
    decisions: tuple[str, ...] = ()
    """Reason of each scaling by the autoscaler."""


class ServingMeter:
    """Counts what a plan's status reports, once that status is stored."""

    def __init__(
        self, metrics: Metrics, cache: ClusterCache, memory: Callable[[str], Memories | None]
    ) -> None:
        """`memory` returns the memory of the newest executed plan of a job, by the job's uid."""
        self._metrics = metrics
        self._memory = memory
        self._logged: dict[str, float] = {}
        """Unix seconds of the newest logged decision of the autoscaler, by uid of the job."""
        self._before: dict[str, Mapping[str, Any]] = {}
        """The status before the write that is under way, by uid of the job."""
        cache.objects(servingjob.KIND).listen(self._changed)

    def before_status_write(self, job: CachedObject, plan: Plan) -> None:
        """Remember the stored status. The change is counted when the fresh status arrives in the cache."""
        if counted(job.status, plan.status or {}) != Counted():
            self._before[job.uid] = job.status

    def after_reconcile(self, job: CachedObject) -> None:
        """Log each new decision of the autoscaler with its input, so that it can be made again."""
        logged = self._logged.get(job.uid, 0.0)
        for role, memory in (self._memory(job.uid) or {}).items():
            if memory.sync is not None and memory.sync.at > logged:
                self._logged[job.uid] = memory.sync.at
                log.debug("autoscaler decision", role=role, sync=memory.sync)

    def _changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._before.pop(before.uid, None)
            self._logged.pop(before.uid, None)
        if after is None or (known := self._before.get(after.uid)) is None:
            return
        found = counted(known, after.status)
        if found != Counted():
            del self._before[after.uid]
        if found.rollout is not None:
            self._metrics.serving_rollouts.labels(found.rollout).inc()
        self._metrics.serving_restarts.inc(found.restarts)
        for reason in found.decisions:
            self._metrics.autoscaler.decisions.labels(reason).inc()


def counted(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counted:
    """Return what the metrics count between two statuses: the end of a rollout, restarts and scaling
    decisions.
    """
    was, now = _progressing(before), _progressing(after)
    known = {(one["role"], one["number"]): set(one.get("times") or ()) for one in _groups(before)}
    restarts = sum(
        len(set(one.get("times") or ()) - known.get((one["role"], one["number"]), set()))
        for one in _groups(after)
    )
    made = _decisions(before)
    decisions = tuple(reason for key, reason in _decisions(after).items() if key not in made)
    return Counted(RESULTS.get(now) if now != was else None, restarts, decisions)


def _progressing(status: Mapping[str, Any]) -> str:
    conditions = status.get("conditions") or ()
    return next((one["reason"] for one in conditions if one["type"] == ConditionType.PROGRESSING), "")


def _groups(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((status.get("internal") or {}).get("groups") or ())


def _decisions(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the reason of each recorded decision, by role and time."""
    return {
        (role["role"], one["time"]): one["reason"]
        for role in status.get("scaling") or ()
        for one in role.get("decisions") or ()
    }
