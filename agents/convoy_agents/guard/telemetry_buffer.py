"""Telemetry that waits for the hub's next heartbeat."""

from __future__ import annotations

from collections import deque

from convoy_agents import metrics
from convoy_agents.wire import hub_pb2

MAX_WINDOWS = 32
"""Of one rank; the oldest are dropped. A hub that was away so long judges by what comes then."""
MAX_BYTES = 16 * 2**20
"""Of all pods; what is more is dropped while no hub takes it."""
MESSAGE_BYTES = 4 * 2**20
"""Of a message; the next pod goes with another one. The hub refuses those of more than 16 MiB, and one pod
cannot have 8.
"""


class TelemetryBuffer:
    """By pod and rank what was not sent yet."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[int, dict[int, deque[hub_pb2.StepWindow]]]] = {}
        """The incarnation, and what its ranks said."""
        self._bytes = 0

    def add(self, uid: str, incarnation: int, windows: tuple[hub_pb2.StepWindow, ...]) -> None:
        """Takes what a rank of a pod said; what ranks of another incarnation said is dropped."""
        known, ranks = self._pods.get(uid, (incarnation, {}))
        if known != incarnation:
            self.drop_pod(uid)
            ranks = {}
        self._pods[uid] = (incarnation, ranks)
        for window in windows:
            waiting, size = ranks.setdefault(window.rank, deque()), window.ByteSize()
            if len(waiting) == MAX_WINDOWS or (waiting and self._bytes + size > MAX_BYTES):
                metrics.TELEMETRY_DROPPED.inc()
                self._bytes -= waiting.popleft().ByteSize()
            if self._bytes + size > MAX_BYTES:
                metrics.TELEMETRY_DROPPED.inc()
                continue
            waiting.append(window)
            self._bytes += size

    def drop_pod(self, uid: str) -> None:
        """The pod left the node."""
        _, ranks = self._pods.pop(uid, (0, {}))
        self._bytes -= sum(window.ByteSize() for waiting in ranks.values() for window in waiting)

    def pop_message(self) -> hub_pb2.Telemetry | None:
        """What of it fits into one message; None when there is nothing."""
        message, size = hub_pb2.Telemetry(), 0
        while self._pods and size < MESSAGE_BYTES:
            uid = next(iter(self._pods))
            incarnation, ranks = self._pods[uid]
            self.drop_pod(uid)
            pod = message.pods.add(pod_uid=uid, incarnation=incarnation)
            for rank in sorted(ranks):
                pod.windows.extend(ranks[rank])
            size += pod.ByteSize()
        return message if message.pods else None
