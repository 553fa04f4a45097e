"""The straggler detectors of all jobs. They process the steps that ranks report.

The state of a detector is only in memory, so another leader must learn it again from a few windows. The
reasons for actions on nodes are stored in NodeHealths.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import structlog
from pydantic import ValidationError

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import CachedObject, Pod
from convoy_controllers.guard.findings import Finding, Report
from convoy_controllers.guard.rank_placement import place_ranks
from convoy_controllers.guard.residuals import FEWEST
from convoy_controllers.guard.suspicions import SuspicionRecord
from convoy_controllers.guard.telemetry import Collective, Position, Window, parse_members
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.trainingjob.controller import ended
from convoy_controllers.views import GuardView, SlowView
from convoy_crds.layout import present, world_size
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import has_formed
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.job_detector import JobDetector
from convoy_operator.limits import TokenBucket
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue

log = structlog.get_logger(__name__)

_MAX_WINDOWS = 4096
"""Maximum number of windows of one pod in one message. It is twice the number that an honest agent sends:
32 windows for each of 64 ranks.
"""
_MAX_MICRO, _MAX_COLLECTIVES = 4096, 64
"""Maximum number of micro-batches and of collectives in one window. A window with more is ignored."""
_AT_ONCE = 64
"""Maximum number of windows that are processed before other tasks get a turn. Other tasks also get a turn
after each completed table.
"""
_SHARE, _SECONDS_AT_ONCE = 0.5, 5
"""Maximum share of a processor for the tables of all jobs together, and burst in processor seconds.

A table of 10,000 ranks with all their communicators takes a fifth of a second. At the limit, windows
are dropped only for jobs that use more than their equal share: the limit divided by the number of jobs.
"""
_MADE_SECONDS = 1.0
"""Minimum number of seconds between two attempts to create the detector of the same job."""


class StragglerDetectors:
    """The straggler detectors of all jobs. All methods must be called from the event loop."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: WorkQueue[Key],
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._cpu = cpu
        self.on_suspicion: Callable[[], None] = lambda: None
        """Function to call when the set of nodes with persistent slowness in one job changes."""
        self._jobs: dict[str, JobDetector] = {}
        """The detector of each job, by job uid."""
        self._tried: dict[str, float] = {}
        """Time in seconds of the last failed attempt to create the detector of each job, by job uid."""
        self._spent = TokenBucket(_SHARE, _SECONDS_AT_ONCE, clock)
        """Rate limit of processor seconds for all detectors together."""
        cache.jobs.listen(self._changed)

    def view(self, uid: str) -> GuardView | None:
        """Return the straggler findings for a job; None before its ranks have reported a step."""
        job = self._jobs.get(uid)
        return job.view if job is not None else None

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the suspicions of jobs against each node, by node name. Only the current incarnation of
        each job counts. A suspicion is left out if the detector found no persistent slowness in the
        job's newest window.
        """
        return self._suspicions(lambda job: job.held)

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return slowness that may be the node's fault but does not prove a fault, such as slow input, by
        node name. Only persistent slowness is returned.
        """
        return self._suspicions(lambda job: job.noticed)

    def _suspicions(
        self, which: Callable[[JobDetector], Mapping[str, SuspicionRecord]]
    ) -> Mapping[str, tuple[Suspicion, ...]]:
        found: dict[str, list[Suspicion]] = defaultdict(list)
        for uid, job in self._jobs.items():
            known = self._cache.jobs.get(job.key.namespace, job.key.name)
            if known is None or known.uid != uid or known.status.get("incarnation") != job.incarnation:
                continue
            for node, one in which(job).items():
                if one.lasting:
                    found[node].append(job.suspicion(node, one))
        return {node: tuple(several) for node, several in found.items()}

    def paces(self) -> Mapping[str, JobPace]:
        """Return the median step time of each job in its newest windows, by `namespace/name`."""
        found = ((job.key, job.pace) for job in self._jobs.values())
        return {f"{key.namespace}/{key.name}": pace for key, pace in found if pace is not None}

    def record(self, node: str, telemetry: wire.PodTelemetry, since: int = 0) -> int:
        """Process the windows of one pod's ranks, starting at index `since`. Windows of other pods' ranks
        are ignored.

        Stop after one completed table, or after `_AT_ONCE` windows. Return the index of the next window to
        process, or 0 if all are processed.
        """
        pod = self._cache.pods.by_uid(telemetry.pod_uid)
        if pod is None or pod.view.node != node:
            return 0
        if (job := self._job(pod, telemetry.incarnation)) is None:
            return 0
        began = self._clock()
        end = self._feed(job, pod.name, telemetry, since)
        self._metrics.guard_seconds.inc(self._clock() - began)
        return end if end < min(len(telemetry.windows), _MAX_WINDOWS) else 0

    def _feed(self, job: JobDetector, pod: str, telemetry: wire.PodTelemetry, since: int) -> int:
        own = job.placement.ranks.get(pod, range(0))
        size = job.placement.layout.size
        before, suspected = job.view, _lasting(job)
        seen = job.canary.last_result
        end = since
        for window in telemetry.windows[since : min(since + _AT_ONCE, _MAX_WINDOWS)]:
            end += 1
            if window.rank not in own or not _sensible(window):
                continue
            self._metrics.guard_windows.inc()
            if job.overloaded or (self._spent.debt and job.usage.rate > _SHARE / len(self._jobs)):
                self._metrics.guard_windows_dropped.inc()
                continue
            began = self._cpu()
            if report := job.advance(_window(window, size), self._wall()):
                cost = self._cpu() - began
                self._spent.reserve(cost)
                job.usage.add(cost)
                job.view = _view(job, report)
                break
        if _is_news(before, job.view):
            self._queue.add(job.key, 0.0)
        if job.canary.last_result is not seen:
            self._metrics.guard_canaries.labels(job.canary.last_result.value).inc()
            if job.canary_missed:
                log.warning(
                    "the injected slow canary was not detected: 'no straggler' is not reliable for this job",
                    job=f"{job.key.namespace}/{job.key.name}",
                )
        if _lasting(job) != suspected:
            self.on_suspicion()
        return end

    def _job(self, pod: Pod, incarnation: int) -> JobDetector | None:
        """Return the detector of a pod's job. Return None if `incarnation` is not the job's current one, or
        if not all slots of the incarnation have a pod on a node.
        """
        parent = self._cache.jobs.get(pod.namespace, pod.job)
        if parent is None or parent.uid != pod.view.owner_uid or ended(parent):
            return None
        status = parent.status
        if status.get("incarnation") != incarnation or not has_formed(status):
            return None
        known = self._jobs.get(parent.uid)
        if known is None or known.incarnation != incarnation:
            if self._clock() < self._tried.get(parent.uid, -math.inf) + _MADE_SECONDS:
                return None
            made = self._made(parent, incarnation)
            if made is None:
                self._tried[parent.uid] = self._clock()
                return None
            self._tried.pop(parent.uid, None)
            known = self._jobs[parent.uid] = made
        return known

    def _made(self, parent: CachedObject, incarnation: int) -> JobDetector | None:
        try:
            slots = present(TrainingJob.model_validate(parent.raw))
        except ValidationError:
            return None  # The reconcile of this job reports the invalid object.
        pods = self._cache.pods.indexed((parent.namespace, parent.name))
        nodes = {
            pod.name: pod.view.node for pod in pods if pod.view.node and pod.view.owner_uid == parent.uid
        }
        if any(slot.pod not in nodes for slot in slots) or not world_size(slots):
            # At least one slot has no pod on a node: its pod was deleted, so this incarnation is about to
            # end.
            return None
        found = (self._cache.nodes.get("", name) for name in set(nodes.values()))
        labels = {node.name: node.labels for node in found if node is not None}
        key = Key(TRAINING_JOB.name, parent.namespace, parent.name)
        return JobDetector(key, parent.uid, incarnation, place_ranks(slots, nodes, labels), self._clock)

    def _changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or ended(after)):
            self._jobs.pop(before.uid, None)
            self._tried.pop(before.uid, None)


def _lasting(job: JobDetector) -> tuple[set[str], ...]:
    return tuple({node for node, one in which.items() if one.lasting} for which in (job.held, job.noticed))


def _sensible(window: wire.StepWindow) -> bool:
    return len(window.micro) <= _MAX_MICRO and len(window.collectives) <= _MAX_COLLECTIVES


def _window(window: wire.StepWindow, size: int) -> Window:
    return Window(
        rank=window.rank,
        first=window.first,
        last=window.last,
        wall=window.wall,
        compute=window.compute,
        optimizer=window.optimizer,
        data=window.data,
        wait=window.wait,
        save=window.save,
        tokens=window.tokens,
        micro=tuple(window.micro),
        collectives=tuple(
            Collective(
                group=f"{one.kind} {one.members}",
                kind=one.kind,
                members=found,
                bytes=one.bytes,
                count=one.count,
                seconds=one.seconds,
            )
            for one in window.collectives
            if (found := parse_members(one.members, size)) is not None
        ),
        position=(
            Position(window.position.stage, window.position.replica) if window.HasField("position") else None
        ),
        exchanges=window.exchanges,
    )


def _view(job: JobDetector, report: Report) -> GuardView:
    return GuardView(
        incarnation=job.incarnation,
        enough_peers=int(np.bincount(job.placement.layout.peers).max()) >= FEWEST,
        slow=tuple(_slow(job, finding, report.last - report.first + 1) for finding in report.findings),
        canary_missed=job.canary_missed,
        layout_unknown=job.layout_unknown,
    )


def _slow(job: JobDetector, finding: Finding, steps: int) -> SlowView:
    whole = job.step_seconds * steps
    return SlowView(
        cause=finding.cause.value,
        place=finding.place.value,
        ranks=finding.ranks,
        nodes=tuple(job.placement.by_node(finding.ranks)),
        since=finding.since,
        slowdown=finding.slowdown,
        lost=min(1.0, max(0.0, finding.lost / whole)) if whole > 0 else 0.0,
        persistent=finding.persistent,
        proof=finding.proof,
    )


def _is_news(before: GuardView | None, after: GuardView | None) -> bool:
    """Return True if two views of a job differ in their findings. A difference in the slowdown alone does
    not count.
    """
    return _gist(before) != _gist(after)


def _gist(view: GuardView | None) -> object:
    if view is None:
        return None
    return (
        view.enough_peers,
        view.canary_missed,
        view.layout_unknown,
        {(one.cause, one.place, one.ranks, one.persistent) for one in view.slow},
    )
