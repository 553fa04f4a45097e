"""Records the totals that agents report of serving pods, and queues the pods' jobs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import Pod
from convoy_controllers.keys import Key
from convoy_controllers.servingjob import traffic
from convoy_controllers.servingjob.loads import Load, load
from convoy_controllers.servingjob.traffic import Figures, Latencies, Series, Totals
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_ROLE, ROLE_ACTIVATOR
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.slow_replicas import SlowReplicas

MAX_BOUNDS = 64
"""Maximum number of upper bounds of a histogram. A histogram with more is ignored."""


class TrafficRecords:
    """The newest totals of every serving pod. All methods must be called from the event loop."""

    def __init__(self, context: HubContext, progress_delay: Callable[[Key], float]) -> None:
        """`progress_delay` returns the seconds until the operator may write a job's progress again."""
        self._cache = context.cache
        self._queue = context.queue
        self._clock = context.clock
        self._progress_delay = progress_delay
        self._pods: dict[str, Series] = {}
        """The samples of each pod in the cache, by uid."""
        self._busy: set[str] = set()
        """Uids of the pods that had requests at their last report."""
        self._slow = SlowReplicas(context.cache, context.clock)
        self._cache.pods.listen(self._changed)

    def record(self, node: str, report: wire.PodTraffic) -> None:
        """Record the totals of one pod, and queue its job if the pod has requests. A report counts only if
        the API server says that the pod runs on the reporting node.
        """
        pod = self._cache.pods.by_uid(report.pod_uid)
        if pod is None or pod.view.node != node:
            return
        key = self._cache.job_key(pod)
        before = self._pods.get(pod.uid, ())
        series = traffic.record(before, _totals(report), self._clock())
        self._pods[pod.uid] = series
        busy = traffic.busy(series)
        if key is not None and (busy or pod.uid in self._busy):
            # The report after the last request is used too: with it the figures return to 0.
            self._queue.add(
                key, 0.0 if _holds_first_request(pod, before, series) else self._progress_delay(key)
            )
            if self._slow.advance(pod, self._pods.get):
                self._queue.add(key, 0.0)
        (self._busy.add if busy else self._busy.discard)(pod.uid)

    def series(self, pods: Iterable[PodView]) -> dict[str, Series]:
        """Return the samples of those of these pods that have reported, by uid."""
        return {pod.uid: found for pod in pods if (found := self._pods.get(pod.uid)) is not None}

    def figures(self, pods: Iterable[PodView]) -> Figures | None:
        """Return the figures of the requests of these pods; None if no pod reports its requests."""
        known = list(pods)
        found = traffic.figures(self.series(known).values(), self._clock())
        return replace(found, slow=self._slow.found(known)) if found is not None else None

    def loads(self, pods: Iterable[PodView]) -> dict[str, Load]:
        """Return the load of each of these pods that has reported it lately, by uid."""
        now = self._clock()
        found = {uid: load(series, now) for uid, series in self.series(pods).items()}
        return {uid: one for uid, one in found.items() if one is not None}

    def _changed(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if after is None and before is not None:
            self._pods.pop(before.uid, None)
            self._busy.discard(before.uid)
            self._slow.drop(before)


def _holds_first_request(pod: Pod, before: Series, after: Series) -> bool:
    """Return True if an activator holds a request, and held none at its last report. No plan has started a
    replica for it yet.
    """
    held = before[-1].totals.queue if before else 0
    return pod.view.labels.get(LABEL_ROLE) == ROLE_ACTIVATOR and after[-1].totals.queue > 0 == held


def _totals(report: wire.PodTraffic) -> Totals:
    return Totals(
        incarnation=report.incarnation,
        queue=report.queue,
        in_flight=report.in_flight,
        requests=report.requests,
        errors=report.errors,
        refused=report.refused,
        tokens=report.tokens,
        compute_seconds=report.compute_seconds,
        cpu_seconds=report.cpu_seconds,
        latency=_latencies(report.latency),
        first_token=_latencies(report.first_token),
    )


@lru_cache(maxsize=64)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Return one object for equal bounds. Thousands of samples have the same bounds."""
    return bounds


def _latencies(histogram: wire.Latencies) -> Latencies:
    if not 0 < len(histogram.bounds) <= MAX_BOUNDS or len(histogram.counts) != len(histogram.bounds) + 1:
        return Latencies()
    return Latencies(_shared(tuple(histogram.bounds)), array("Q", histogram.counts))
