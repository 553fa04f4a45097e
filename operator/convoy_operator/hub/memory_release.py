"""Orders agents to release the memory that jobs no longer need on their nodes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from convoy_controllers.cached import CachedObject
from convoy_controllers.checkpoint import replica_state
from convoy_controllers.trainingjob.controller import ended
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.agent_record import AgentRecord
from convoy_operator.hub.state_places import StatePlaces

RELEASE_SECONDS = 10.0
"""Seconds between two searches for memory to release."""


class MemoryRelease:
    """Finds checkpoints in nodes' memory that no job needs. It calls `release(node, job_uid)`, which orders
    the node's agent to release the memory of that job.
    """

    def __init__(self, cache: ClusterCache, release: Callable[[str, str], object]) -> None:
        self._cache = cache
        self._release = release
        self._states = StatePlaces(cache)
        self._now = 0.0
        self._due = 0.0
        self._over: set[tuple[str, str]] = set()
        """Pairs (node, job uid) for which the last search found that no job needs the checkpoints in the
        node's memory.
        """

    def due(self, now: float) -> bool:
        """Return True if a search is due, and schedule the next one."""
        if now < self._due:
            return False
        self._now, self._due = now, now + RELEASE_SECONDS
        return True

    def poll(self, agents: Iterable[tuple[str, AgentRecord]]) -> None:
        """Release the memory of finished and deleted jobs. For other jobs, release the memory of nodes on
        which `_places` finds that the job no longer needs the memory. The states of ServingJobs' replicas
        have rules of their own.
        """
        agents = list(agents)
        views = {uid: view for _, agent in agents for uid, view in agent.slots.items()}
        state_places = self._states.search(views, self._now)
        alive = {job.uid: job for job in self._cache.jobs if not ended(job)}
        before, self._over = self._over, set()
        # Cache the result for each job, because many nodes hold checkpoints of the same job.
        places: dict[str, Container[str] | None] = {}
        for node, agent in agents:
            for uid in agent.holdings:
                if uid not in places:
                    is_state = replica_state.parse(uid) is not None
                    places[uid] = state_places(uid) if is_state else self._places(alive.get(uid))
                needed = places[uid]
                if needed is None or node in needed:
                    continue
                self._over.add((node, uid))
                # Release the memory only if the previous search found it unneeded too. This is a precaution:
                # released checkpoints cannot be recovered.
                if (node, uid) in before and agent.stream is not None:
                    self._release(node, uid)

    def _places(self, job: CachedObject | None) -> Container[str] | None:
        """Return the nodes whose memory a job needs: the nodes of its pods. Before the job has saved a
        checkpoint on these nodes that survives the loss of a node, it needs the memory of all nodes;
        this is returned as None. A finished or deleted job (`job` is None) needs no memory.
        """
        if job is None:
            return ()
        pods = self._cache.pods.indexed((job.namespace, job.name))
        nodes = {pod.view.node for pod in pods if pod.view.node}
        return nodes if views.has_current_checkpoint(job.raw, len(nodes)) else None
