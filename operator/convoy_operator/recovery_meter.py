"""Metrics of recoveries: the duration of each recovery, and the number of steps that were lost by its
fault.

A leader measures only recoveries that started while it led, because it does not know when earlier ones
started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from convoy_controllers.cached import CachedObject, Pod
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import timeline
from convoy_controllers.trainingjob.losses import lost
from convoy_controllers.trainingjob.timeline import Placing, Timeline
from convoy_controllers.views import PodView, SlotView
from convoy_controllers.workers.pod import pod_incarnation
from convoy_crds.terms import LABEL_MEMBERSHIP
from convoy_crds.trainingjob_status import TERMINAL, Phase, TrainingJobStatus, has_formed
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics

_OVER = frozenset({*TERMINAL, Phase.SUSPENDING, Phase.SUSPENDED})
"""Phases of a job in which its recovery has ended without a step."""


@dataclass(slots=True)
class _OpenRecovery:
    """The recovery of a job that has not completed a step since its restart."""

    namespace: str
    job: str
    timeline: Timeline
    placings: dict[str, Placing] = field(default_factory=dict)
    """For each pod that was created for the recovery, by pod uid: when it was created and when it got a
    node.
    """


class RecoveryMeter:
    """Measures recoveries for the leader. It tracks each job from a restart to the next completed step."""

    def __init__(
        self,
        metrics: Metrics,
        cache: ClusterCache,
        slots: Callable[[tuple[PodView, ...]], Mapping[str, SlotView]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`slots` returns the agents' reports on the given pods, by pod uid."""
        self._metrics = metrics
        self._cache = cache
        self._slots = slots
        self._wall = wall
        self._open: dict[str, _OpenRecovery] = {}
        """The recovery of each job that is recovering, by job uid."""
        self._pending: dict[str, tuple[int, float]] = {}
        """The restart of each job whose status is being stored, by job uid: the number of the restart, and
        the Unix time of its fault in seconds.
        """
        cache.jobs.listen(self._job_changed)
        cache.pods.listen(self._pod_changed)

    def __len__(self) -> int:
        return len(self._open)

    def before_status_write(self, job: CachedObject, plan: Plan) -> None:
        """Remember a restart whose status is about to be stored. The restart is counted when the stored
        status arrives in the cache, because the response to the write may be lost.
        """
        total = _restarts(plan.status or {})
        if total > _restarts(job.status):
            self._pending[job.uid] = total, plan.fault_at

    def _count_restart(self, job: CachedObject, fault_at: float) -> None:
        """Count a restart whose status is stored. `fault_at` is the Unix time of the fault in seconds, or 0
        if unknown.
        """
        try:
            status = TrainingJobStatus.model_validate(job.status)
        except ValidationError:
            return
        last = status.restarts.last
        if last is None:
            return
        counted = "true" if last.counted else "false"
        self._metrics.restarts.labels(last.reason, counted).inc()
        at = datetime.fromtimestamp(fault_at, UTC) if fault_at else last.at
        loss = lost(status, views.uses_checkpoints(job.raw), at)
        if loss.steps is not None:
            self._metrics.lost_steps.observe(loss.steps)
        if loss.seconds is not None:
            self._metrics.checkpoint_age.observe(loss.seconds)
        known, pause = self._open.get(job.uid), status.internal.restarts.not_before
        updated = timeline.start(
            known.timeline if known is not None else None,
            incarnation=status.incarnation,
            decided=last.at.timestamp(),
            fault_at=fault_at,
            not_before=pause.timestamp() if pause is not None else 0.0,
        )
        self._count({}, updated)
        self._open[job.uid] = _OpenRecovery(job.namespace, job.name, updated)

    def after_reconcile(self, job: CachedObject) -> None:
        """Update the timeline of a job that is recovering from the newest reports of its agents. Close the
        recovery if the job has completed a step or has ended.
        """
        known = self._open.get(job.uid)
        if known is None:
            return
        status = job.status
        if has_formed(status):
            pods = self._cache.pods.indexed((job.namespace, job.name))
            own = tuple(
                pod.view
                for pod in pods
                if pod.view.owner_uid == job.uid and LABEL_MEMBERSHIP not in pod.view.labels
            )
            incarnation = status.get("incarnation", 0)
            reports = self._slots(own)
            running = status.get("phase") == Phase.RUNNING
            updated = timeline.merge_reports(known.timeline, incarnation, running, reports, known.placings)
            self._count(timeline.durations(known.timeline), updated)
            known.timeline = updated
        if known.timeline.stepped or status.get("phase") in _OVER:
            del self._open[job.uid]

    def _count(self, before: Mapping[timeline.RecoveryPhase, float], updated: Timeline) -> None:
        for phase, seconds in timeline.durations(updated).items():
            if phase not in before:
                self._metrics.recovery_seconds.labels(phase.value).observe(seconds)

    def _pod_changed(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        replaced = before is not None and (after is None or after.uid != before.uid)
        if replaced and before is not None and (known := self._recovery(before)) is not None:
            known.placings.pop(before.uid, None)
        if after is None or (known := self._recovery(after)) is None:
            return
        if pod_incarnation(after.view) >= known.timeline.incarnation:
            placing = timeline.record_placing(
                known.placings.get(after.uid), bool(after.view.node), self._wall()
            )
            known.placings[after.uid] = placing

    def _recovery(self, pod: Pod) -> _OpenRecovery | None:
        """Return the open recovery of a pod's job; None for an Independent pod. The pod must be owned by the
        job, be in its namespace and carry its label: any user can set an owner on a pod.
        """
        if LABEL_MEMBERSHIP in pod.view.labels:
            return None
        known = self._open.get(pod.view.owner_uid or "")
        return known if known and (known.namespace, known.job) == (pod.namespace, pod.job) else None

    def _job_changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._open.pop(before.uid, None)
            self._pending.pop(before.uid, None)
        if before is not None and after is not None and after.uid == before.uid:
            self._metrics.independent.count(before.status, after.status)
            self._metrics.traces.count(before.status, after.status)
        if after is not None and (waits := self._pending.get(after.uid)) is not None:
            total, fault_at = waits
            if _restarts(after.status) >= total:
                del self._pending[after.uid]
                self._count_restart(after, fault_at)


def _restarts(status: Mapping[str, Any]) -> int:
    return int((status.get("restarts") or {}).get("total", 0))
