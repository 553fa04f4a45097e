"""The release of nodes' memory that no job needs any more."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from convoy_controllers.cached import CachedObject
from convoy_controllers.trainingjob.controller import ended
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.agent_record import AgentRecord

RELEASE_SECONDS = 10.0
"""Seconds between two polls."""


class MemoryRelease:
    """Finds checkpoints in nodes' memory that no job needs. `release` (node, job uid) sends the order to
    the node's agent.
    """

    def __init__(self, cache: ClusterCache, release: Callable[[str, str], object]) -> None:
        self._cache = cache
        self._release = release
        self._due = 0.0
        self._over: set[tuple[str, str]] = set()
        """(node, job uid) of the memory that was not needed at the last poll."""

    def due(self, now: float) -> bool:
        """Return True if a poll is due, and schedule the next one."""
        if now < self._due:
            return False
        self._due = now + RELEASE_SECONDS
        return True

    def poll(self, agents: Iterable[tuple[str, AgentRecord]]) -> None:
        """Release the memory of finished and deleted jobs, and of nodes that a job has left."""
        alive = {job.uid: job for job in self._cache.jobs if not ended(job)}
        before, self._over = self._over, set()
        # Find a job's pods once, not once for each of its nodes.
        places: dict[str, Container[str] | None] = {}
        for node, agent in agents:
            for uid in agent.holdings:
                if uid not in places:
                    places[uid] = self._places(alive.get(uid))
                needed = places[uid]
                if needed is None or node in needed:
                    continue
                self._over.add((node, uid))
                # Release only what two polls in a row found unneeded: released memory cannot be recovered.
                if (node, uid) in before and agent.stream is not None:
                    self._release(node, uid)

    def _places(self, job: CachedObject | None) -> Container[str] | None:
        """Return the nodes whose memory a job needs; None for all nodes."""
        if job is None:
            return ()
        pods = self._cache.pods.indexed((job.namespace, job.name))
        nodes = {pod.view.node for pod in pods if pod.view.node}
        return nodes if views.has_current_checkpoint(job.raw, len(nodes)) else None
