"""The detectors of slow replicas, one for each set of peers: the replicas of a job's role and revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convoy_controllers.cached import Pod
from convoy_controllers.servingjob.groups import slot_of
from convoy_controllers.servingjob.slowness import Detector, Work
from convoy_controllers.servingjob.traffic import Series, SlowReplica
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_REVISION, LABEL_ROLE
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.limits import TokenBucket

_WINDOWS_PER_SECOND, _WINDOWS_AT_ONCE = 25.0, 100
"""Rate limit and burst of windows, for all detectors together. A window takes about 4 ms. Above the limit,
windows become longer.
"""

Peers = tuple[str, str, str]
"""Uid of the job, role and revision."""


class SlowReplicas:
    """The detectors of all ServingJobs. All methods must be called from the event loop."""

    def __init__(self, cache: ClusterCache, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._known: dict[Peers, Detector] = {}
        self._budget = TokenBucket(_WINDOWS_PER_SECOND, _WINDOWS_AT_ONCE, clock)

    def advance(self, pod: Pod, series: Callable[[str], Series | None]) -> bool:
        """End the window of a pod and its peers if it is due. Return True if other replicas are slow now.
        `series` returns the samples of a pod, by uid.
        """
        key, now = peers_of(pod.view), self._clock()
        known = self._known.get(key)
        if known is not None and not known.due(now):
            return False
        if self._budget.debt:
            return False
        totals = {
            one.uid: Work(
                found[-1].totals.incarnation, found[-1].totals.compute_seconds, found[-1].totals.tokens
            )
            for one in self._cache.pods.indexed((pod.namespace, pod.job))
            if peers_of(one.view) == key
            and not one.view.deleting
            and slot_of(one.view) == 0
            and (found := series(one.uid))
        }
        if len(totals) < 2:
            self._known.pop(key, None)
            return known is not None and bool(known.slow)
        self._budget.reserve()
        if known is None or known.pods != tuple(sorted(totals)):
            known = Detector.of(tuple(totals))
        advanced = known.advanced(totals, now)
        self._known[key] = advanced
        return {one.pod for one in advanced.slow} != {one.pod for one in known.slow}

    def found(self, pods: Iterable[PodView]) -> tuple[SlowReplica, ...]:
        """Return the slow replicas among these pods."""
        views = {pod.uid: pod for pod in pods}
        keys = {peers_of(pod) for pod in views.values()}
        slow = (one for key in keys if key in self._known for one in self._known[key].slow)
        return tuple(sorted((one for one in slow if one.pod in views), key=lambda one: one.pod))

    def drop(self, pod: Pod) -> None:
        """Drop the detector of a deleted pod and its peers. The peers that are left get another one."""
        self._known.pop(peers_of(pod.view), None)


def peers_of(pod: PodView) -> Peers:
    """Return the peers of a pod. Replicas of different revisions may differ in speed."""
    return pod.owner_uid or "", pod.labels.get(LABEL_ROLE, ""), pod.labels.get(LABEL_REVISION, "")
