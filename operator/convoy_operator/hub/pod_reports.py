"""Records the agents' reports on their pods, and queues the pods' jobs.

A report counts only if the API server says that the pod runs on the reporting node. This is checked when
the report is used. It cannot be checked when the report arrives, because the watch may not have reported
the pod yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.keys import Key
from convoy_operator.hub import messages
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.peer_directory import PeerDirectory
from convoy_operator.hub.slot_tokens import SlotTokenIssuer

log = structlog.get_logger(__name__)


class PodReports:
    """Records each report and queues the pod's job. The delay depends on what has changed."""

    def __init__(
        self,
        context: HubContext,
        registry: AgentRegistry,
        directory: PeerDirectory,
        tokens: SlotTokenIssuer,
        progress_delay: Callable[[Key], float],
    ) -> None:
        """`progress_delay` returns the seconds until the operator may write a job's progress to the job's
        status again.
        """
        self._cache = context.cache
        self._queue = context.queue
        self._wall = context.wall
        self._debounce = context.settings.debounce_seconds
        self._registry = registry
        self._directory = directory
        self._tokens = tokens
        self._progress_delay = progress_delay

    def record(self, node: str, report: wire.PodReport) -> None:
        """Record an agent's report on one pod, and queue the pod's job if the report differs from the
        previous one.
        """
        record = self._registry.ensure(node)
        uid = report.pod_uid
        before = record.slots.get(uid)
        if not record.fits(report):
            if not record.over_limit:
                log.warning(
                    "agent reports more pods or ranks than a node can have, the rest is ignored",
                    node=node,
                    pods=len(record.slots),
                )
            record.over_limit = True
            return
        # A pod without an incarnation has no slot token yet, so its token is not checked and counts as valid.
        slot_token_valid = not report.incarnation or self._tokens.current(report.authority)
        after = messages.slot_view(report, node, slot_token_valid=slot_token_valid)
        if before is not None:
            stepped = self._wall() if messages.progressed(before, after) else before.stepped
            after = replace(after, stepped=stepped)
        record.store(report, after)
        self._directory.correct(record, uid)
        if messages.urgent(before, after):
            self.wake(node, uid, 0.0)
        elif before is None or messages.skeleton(before) != messages.skeleton(after):
            self.wake(node, uid, self._debounce)
        elif before != after:
            self.wake(node, uid, None)

    def remove(self, node: str, uid: str) -> None:
        """Drop the report of a pod whose volume was unmounted from the node."""
        record = self._registry.get(node)
        if record is not None and record.slots.pop(uid, None) is not None:
            record.peers.pop(uid, None)
            self.wake(node, uid, self._debounce)

    def wake(self, node: str, uid: str, delay: float | None) -> None:
        """Queue a pod's job within `delay` seconds. If `delay` is None, queue the job for the time when the
        operator may write the job's progress to its status again.
        """
        pod = self._cache.pods.by_uid(uid)
        key = self._cache.job_key(pod) if pod is not None and pod.view.node == node else None
        if key is not None:
            self._queue.add(key, self._progress_delay(key) if delay is None else delay)
