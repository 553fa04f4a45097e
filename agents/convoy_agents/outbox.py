"""The schedule of pod reports to the hub. It contains only pod uids, and the caller builds each report when
it sends the report.
"""

from __future__ import annotations

from convoy_agents.pods.state import Urgency
from convoy_controllers.liveness.timings import REPORT_SECONDS

NOW_SECONDS = 0.05
"""Minimum seconds between two urgent reports of a pod. A flapping pod therefore causes at most 20 reports
per second.
"""

MAX_REMOVED = 4096
"""Maximum number of removed pods that are remembered. The limit is reached only while the agent has no
session with the hub. No information is lost, because the next Hello lists all pods of the node.
"""


class Outbox:
    """Holds at most one pending report per pod. All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        self._removed: dict[str, None] = {}

    def put(self, uid: str, urgency: Urgency, now: float) -> None:
        """Schedule a report of a changed pod. An urgent change can make a pending report due earlier, never
        later.
        """
        if urgency is Urgency.NONE:
            return
        gap = NOW_SECONDS if urgency is Urgency.NOW else REPORT_SECONDS
        due = max(now, self._sent.get(uid, -REPORT_SECONDS + now) + gap)
        self._due[uid] = min(due, self._due.get(uid, due))

    def add_removed(self, uid: str) -> None:
        """Record that the pod left the node, and drop the pod's pending report."""
        self._due.pop(uid, None)
        self._sent.pop(uid, None)
        self._removed[uid] = None
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]

    def next_due(self) -> float | None:
        """Return the earliest time at which `pop_due` returns a pod; None if nothing is pending. The time
        is 0 if a removal is pending.
        """
        if self._removed:
            return 0.0
        return min(self._due.values(), default=None)

    def pop_due(self, now: float) -> tuple[list[str], list[str]]:
        """Return (removed pods, pods to report) and mark these pods as sent. In both lists the oldest entry
        comes first.
        """
        removed = list(self._removed)
        self._removed.clear()
        due = sorted((when, uid) for uid, when in self._due.items() if when <= now)
        for _, uid in due:
            del self._due[uid]
            self._sent[uid] = now
        return removed, [uid for _, uid in due]

    def mark_all_sent(self, uids: list[str], now: float) -> None:
        """Mark the pods `uids` as reported and drop all pending removals. The caller does this when Hello
        reports all pods.
        """
        self._due.clear()
        self._removed.clear()
        self._sent = dict.fromkeys(uids, now)
