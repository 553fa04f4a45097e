"""Memory of nodes that no job needs any more, and that is given back."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from convoy_controllers.cached import Parent
from convoy_operator import views
from convoy_operator.hub.known import Known
from convoy_operator.world import World, ended

CLEAR_SECONDS = 10.0
"""Between two looks."""


class Clearing:
    """Of all nodes. `forget`: (node, uid of a job) tells the node's agent."""

    def __init__(self, world: World, forget: Callable[[str, str], object]) -> None:
        self._world = world
        self._forget = forget
        self._due = 0.0
        self._over: set[tuple[str, str]] = set()
        """Nodes, with the jobs whose memory there was of no use any more at the last look."""

    def due(self, now: float) -> bool:
        """Whether it is time for a look; the next is due later, if so."""
        if now < self._due:
            return False
        self._due = now + CLEAR_SECONDS
        return True

    def look(self, agents: Iterable[tuple[str, Known]]) -> None:
        """Has the memory of jobs that are over or gone given back, and that of nodes which jobs have left."""
        alive = {job.uid: job for job in self._world.jobs if not ended(job)}
        before, self._over = self._over, set()
        # A job's pods are looked through once, not once for each of its nodes.
        places: dict[str, Container[str] | None] = {}
        for node, agent in agents:
            for uid in agent.holdings:
                if uid not in places:
                    places[uid] = self._places(alive.get(uid))
                needed = places[uid]
                if needed is None or node in needed:
                    continue
                self._over.add((node, uid))
                # Seen twice: what memory held cannot be had back.
                if (node, uid) in before and agent.stream is not None:
                    self._forget(node, uid)

    def _places(self, job: Parent | None) -> Container[str] | None:
        """Nodes whose memory of a job is needed; None for all."""
        if job is None:
            return ()
        pods = self._world.pods.indexed((job.namespace, job.name))
        nodes = {pod.view.node for pod in pods if pod.view.node}
        return nodes if views.settled(job.raw, len(nodes)) else None
