"""Labels the nodes whose agent is there, so that workers are only placed where one can serve them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from convoy_crds.terms import LABEL_AGENT_READY
from convoy_operator import errors, views
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub.liveness import Liveness
from convoy_operator.limits import backoff
from convoy_operator.resources import NODES
from convoy_operator.views import Node
from convoy_operator.world import World

log = structlog.get_logger(__name__)


def wanted(node: Node, liveness: Liveness, unready_seconds: float, now: float) -> bool:
    """Whether a node shall carry the label: it is given at once, and taken only after a long silence.

    While nobody may be judged (a new leader, a network in doubt) it stays as it is.
    """
    if liveness.connected(node.name, now):
        return True
    if not node.agent_ready:
        return False
    if liveness.grace(now) > 0 or liveness.alarm(now):
        return True
    return liveness.silence(node.name, now) <= unready_seconds


class Labeler:
    """One patch per change; a node that cannot be patched waits longer each time."""

    def __init__(
        self,
        gateway: ApiGateway,
        world: World,
        liveness: Liveness,
        unready_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._world = world
        self._liveness = liveness
        self._unready = unready_seconds
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    async def run(self, seconds: float = 0.5) -> None:
        """Looks again and again until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Sets the label right on every node where it is wrong."""
        now = self._clock()
        for node in self._world.nodes:
            ready = wanted(node, self._liveness, self._unready, now)
            if ready != node.agent_ready and self._failed.get(node.name, (0, 0.0))[1] <= now:
                await self._label(node, ready)
        for name in [name for name in self._failed if self._world.nodes.get("", name) is None]:
            del self._failed[name]

    async def _label(self, node: Node, ready: bool) -> None:
        patch = {"metadata": {"labels": {LABEL_AGENT_READY: "true" if ready else None}}}
        try:
            raw = await self._gateway.patch(NODES, None, node.name, patch)
        except errors.ApiError as fault:
            failures = self._failed.get(node.name, (0, 0.0))[0]
            wait = backoff(failures, 1.0, 60.0)
            self._failed[node.name] = (failures + 1, self._clock() + wait)
            log.warning("node not labelled", node=node.name, error=str(fault), retry_seconds=round(wait, 1))
            return
        self._failed.pop(node.name, None)
        self._world.nodes.upsert(views.node(raw))
        log.info("node labelled", node=node.name, agent_ready=ready)
