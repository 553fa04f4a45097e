"""A bounded buffer of ranks' step timings. The agent sends them to the hub after the next heartbeat."""

from __future__ import annotations

from collections import deque

from convoy_agents import metrics
from convoy_agents.wire import hub_pb2

MAX_WINDOWS = 32
"""Maximum number of windows per rank. At the limit the oldest window is dropped, because after a long
outage the hub needs only recent windows.
"""
MAX_BYTES = 16 * 2**20
"""Maximum bytes of the windows of all pods together. At the limit, a new window replaces the rank's oldest
window, or is dropped if that does not free enough bytes. The limit is reached only while the agent is
not connected to a hub.
"""
MESSAGE_BYTES = 4 * 2**20
"""Number of bytes after which no more pods are added to a message. A message therefore has fewer than
MESSAGE_BYTES plus the bytes of one pod. One pod's windows have less than 8 MiB, so a message stays below
the hub's limit of 16 MiB.
"""


class TelemetryBuffer:
    """The step windows that have not been sent to the hub yet, by pod and rank."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[int, dict[int, deque[hub_pb2.StepWindow]]]] = {}
        """The incarnation and the windows by rank, for each pod's uid."""
        self._bytes = 0

    def add(self, uid: str, incarnation: int, windows: tuple[hub_pb2.StepWindow, ...]) -> None:
        """Add windows of a pod's ranks, and drop the pod's windows of other incarnations."""
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
        """Drop all windows of a pod."""
        _, ranks = self._pods.pop(uid, (0, {}))
        self._bytes -= sum(window.ByteSize() for waiting in ranks.values() for window in waiting)

    def pop_message(self) -> hub_pb2.Telemetry | None:
        """Remove and return the windows for one message; None if the buffer is empty."""
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
