"""The newest totals of each serving pod. The agent sends them to the hub after a heartbeat."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from convoy_agents.wire import hub_pb2

REPEAT_SECONDS = 5.0
"""Seconds after which totals without a change are sent again, so that the hub knows that the replica lives.
"""

URGENT_SECONDS = 1.0
"""Minimum seconds between two times at which the waiting requests of a pod are urgent. The program in a pod
can report what it likes, and each urgent report makes the operator plan the pod's job.
"""


@dataclass(slots=True)
class _Entry:
    totals: hub_pb2.PodTraffic
    unsent: bool = True
    """True if the totals arrived after the last message to the hub."""
    sent: Hashable = None
    """Gist of the totals in the last message to the hub."""
    sent_at: float = 0.0
    scraped: bool = False
    """True if the totals come from the program's metrics, not from a rank's report."""
    urgent_at: float = -math.inf
    """Seconds of the monotonic clock at which waiting requests were last urgent."""


class TrafficBuffer:
    """Holds one set of totals per pod. Times are seconds of one monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pods: dict[str, _Entry] = {}

    def add(self, totals: hub_pb2.PodTraffic) -> bool:
        """Replace the totals of a pod. Return True if requests begin to wait in the pod, at most
        once in `URGENT_SECONDS`.
        """
        known = self._pods.get(totals.pod_uid)
        waited = known.totals.queue if known else 0
        if known is None:
            known = self._pods[totals.pod_uid] = _Entry(totals)
        else:
            known.totals, known.unsent, known.scraped = totals, True, False
        now = self._clock()
        if not totals.queue > 0 == waited or now - known.urgent_at < URGENT_SECONDS:
            return False
        known.urgent_at = now
        return True

    def add_scraped(self, totals: hub_pb2.PodTraffic) -> None:
        """Replace the totals of a pod by those in its program's metrics, unless the pod's rank reports its
        requests itself. The two count different requests.
        """
        known = self._pods.get(totals.pod_uid)
        if known is None or known.scraped:
            self.add(totals)
            self._pods[totals.pod_uid].scraped = True

    def drop_pod(self, uid: str) -> None:
        """Drop the totals of a pod."""
        self._pods.pop(uid, None)

    def pop_message(self, now: float) -> hub_pb2.Traffic | None:
        """Return the totals that changed or must be repeated, and mark them as sent. Return None if there are
        none.
        """
        message = hub_pb2.Traffic()
        for entry in self._pods.values():
            gist = _gist(entry.totals)
            due = gist != entry.sent or now - entry.sent_at >= REPEAT_SECONDS
            if entry.unsent and due:
                entry.unsent, entry.sent, entry.sent_at = False, gist, now
                message.pods.append(entry.totals)
        return message if message.pods else None


def _gist(totals: hub_pb2.PodTraffic) -> Hashable:
    """Return the part of the totals that does not change while there is no request."""
    return (
        totals.incarnation,
        (totals.queue, totals.in_flight),
        (totals.requests, totals.errors, totals.refused, totals.tokens),
    )
