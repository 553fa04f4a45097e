"""Finds the nodes whose memory the saved states of ServingJobs' replicas still need."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.checkpoint import replica_state
from convoy_controllers.views import SlotView
from convoy_crds import servingjob
from convoy_crds.terms import LABEL_GROUP, LABEL_INDEX, LABEL_ROLE
from convoy_operator.cluster_cache import ClusterCache

SUCCESSOR_SECONDS = 600.0
"""Seconds for which the state of a replica that is gone stays. Its successor, which may have another
number, can start from it meanwhile.
"""
Views = Mapping[str, SlotView]
"""The newest report about each pod, by pod uid."""


@dataclass(frozen=True, slots=True)
class _JobStates:
    """The states that the replicas of one job use."""

    current: Mapping[str, Mapping[str, Any]]
    """The record of each replica in the job's status, by uid of its state."""
    families: Container[str]
    """Digests of the roles and revisions of these replicas."""


class StatePlaces:
    """Finds the nodes that need each state. A state that no replica uses stays for its successor."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._unused: dict[str, float] = {}
        """Time since which no replica uses a state, by uid of the state."""

    def search(self, views: Views, now: float) -> Callable[[str], Container[str] | None]:
        """Start a search at `now`, in monotonic seconds. Return a function that returns the nodes on which a
        state must stay, by its uid; None if it must stay on all.
        """
        jobs = {job.uid: job for job in self._cache.kinds[servingjob.KIND.name] if _saves(job)}
        states: dict[str, _JobStates] = {}
        before, self._unused = self._unused, {}

        def places(uid: str) -> Container[str] | None:
            found = replica_state.parse(uid)
            job = jobs.get(found.job_uid) if found else None
            if found is None or job is None:
                return ()
            if job.uid not in states:
                states[job.uid] = _states(job)
            known = states[job.uid]
            if (record := known.current.get(uid)) is not None:
                return self._used_on(job, record, views)
            if found.family not in known.families:
                return ()
            since = self._unused[uid] = before.get(uid, now)
            return None if now - since < SUCCESSOR_SECONDS else ()

        return places

    def _used_on(self, job: CachedObject, record: Mapping[str, Any], views: Views) -> Container[str] | None:
        """Return the nodes of the job's pods. Before the replica has its newest state and the copies there,
        return None, because it may have to be restored from any node.
        """
        pods = self._cache.pods.indexed((job.namespace, job.name))
        wanted = {
            LABEL_ROLE: record.get("role"),
            LABEL_GROUP: str(record.get("number", 0)),
            LABEL_INDEX: "0",
        }
        firsts = [pod.view for pod in pods if wanted.items() <= pod.view.labels.items()]
        current = any(_is_current(views.get(one.uid), record) for one in firsts)
        return {pod.view.node for pod in pods if pod.view.node} if current else None


def _saves(job: CachedObject) -> bool:
    """Return True if the replicas of a ServingJob may save their state."""
    checkpoint = (job.raw.get("spec") or {}).get("checkpoint") or {}
    return (checkpoint.get("tiers") or {}).get("local") is not None


def _states(job: CachedObject) -> _JobStates:
    current = {uid.text: record for uid, record in _records(job)}
    return _JobStates(current, {uid.family for uid, _ in _records(job)})


def _records(job: CachedObject) -> Iterator[tuple[replica_state.StateUid, Mapping[str, Any]]]:
    for record in (job.status.get("internal") or {}).get("groups") or ():
        role, revision = record.get("role", ""), record.get("revision", "")
        yield replica_state.state_uid(job.uid, role, revision, record.get("number", 0)), record


def _is_current(view: SlotView | None, record: Mapping[str, Any]) -> bool:
    """Return True if a replica has saved or restored a state in its present incarnation, and its copies
    exist.
    """
    local = view.committed.get("local") if view else None
    if view is None or local is None or local.incarnation != record.get("incarnation"):
        return False
    peer = view.committed.get("peer")
    hosts = view.replica_state.hosts if view.replica_state else ()
    return not hosts or (peer is not None and peer.step >= local.step)
