"""Sets the agent-ready label on nodes with a running agent. Workers are only placed on nodes with the
label.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from convoy_controllers.cached import Node
from convoy_controllers.liveness.node_view import wants_agent_ready
from convoy_controllers.liveness.timings import POLL_SECONDS
from convoy_controllers.resources import NODES
from convoy_crds.terms import LABEL_AGENT_READY
from convoy_operator import errors, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.limits import backoff

log = structlog.get_logger(__name__)

_GIVEN_AT_ONCE = 16
"""Maximum number of nodes that get the label at the same time. Removals of the label have no limit: a
removal must not wait, because a pod may be about to be placed on the node.
"""


class NodeLabeler:
    """Adds or removes the agent-ready label of each node whose label is wrong. A failed patch is retried
    after a back-off.
    """

    def __init__(
        self,
        gateway: ApiGateway,
        cache: ClusterCache,
        monitor: AgentMonitor,
        unready_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._monitor = monitor
        self._unready = unready_seconds
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}
        self._patching: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Correct wrong labels periodically until cancelled."""
        try:
            while True:
                self.reconcile_once()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            patching = list(self._patching.values())
            for task in patching:
                task.cancel()
            await asyncio.gather(*patching, return_exceptions=True)

    def reconcile_once(self) -> None:
        """Start a patch of each node whose label is wrong."""
        now = self._clock()
        for node in self._cache.nodes:
            if node.name in self._patching or self._failed.get(node.name, (0, 0.0))[1] > now:
                continue
            ready = self._wanted(node, now)
            if ready == node.agent_ready or (ready and len(self._patching) >= _GIVEN_AT_ONCE):
                continue
            self._patching[node.name] = asyncio.create_task(self._label(node, ready))
        for name in [name for name in self._failed if self._cache.nodes.get("", name) is None]:
            del self._failed[name]

    def _wanted(self, node: Node, now: float) -> bool:
        answers = self._monitor.prober.reachable(node.name)
        return wants_agent_ready(node, self._monitor.liveness, answers, self._unready, now)

    async def _label(self, node: Node, ready: bool) -> None:
        try:
            await self._patch(node, ready)
        finally:
            del self._patching[node.name]

    async def _patch(self, node: Node, ready: bool) -> None:
        patch = {"metadata": {"labels": {LABEL_AGENT_READY: "true" if ready else None}}}
        try:
            raw = await self._gateway.patch(NODES, None, node.name, patch)
        except errors.ApiError as fault:
            failures = self._failed.get(node.name, (0, 0.0))[0]
            wait = backoff(failures, 1.0, 60.0)
            self._failed[node.name] = (failures + 1, self._clock() + wait)
            log.warning(
                "setting a node's agent-ready label failed, will retry",
                node=node.name,
                error=str(fault),
                retry_seconds=round(wait, 1),
            )
            return
        self._failed.pop(node.name, None)
        self._cache.nodes.upsert(views.node(raw))
        log.info("node labelled", node=node.name, agent_ready=ready)
