"""The schedule of pod reports to the hub. It stores pod uids; the caller builds a report when it sends it."""

from __future__ import annotations

from convoy_agents.pods.state import Urgency
from convoy_controllers.liveness.timings import REPORT_SECONDS

NOW_SECONDS = 0.05
"""Minimum seconds between two urgent reports of a pod. A flapping pod causes at most 20 messages a second."""

MAX_REMOVED = 4096
"""Maximum number of remembered removals. Only reached without a session; the next Hello lists the pods
anyway.
"""


class Outbox:
    """Holds at most one pending report per pod. All times are seconds of the same clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        self._removed: dict[str, None] = {}

    def put(self, uid: str, urgency: Urgency, now: float) -> None:
        """Schedule a report of a changed pod. An urgent change advances a pending report and never delays
        it.
        """
        if urgency is Urgency.NONE:
            return
        gap = NOW_SECONDS if urgency is Urgency.NOW else REPORT_SECONDS
        due = max(now, self._sent.get(uid, -REPORT_SECONDS + now) + gap)
        self._due[uid] = min(due, self._due.get(uid, due))

    def add_removed(self, uid: str) -> None:
        """Record that the pod left the node. Its pending report is dropped."""
        self._due.pop(uid, None)
        self._sent.pop(uid, None)
        self._removed[uid] = None
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]

    def next_due(self) -> float | None:
        """Return the time at which `pop_due` next returns something; None if nothing is pending."""
        if self._removed:
            return 0.0
        return min(self._due.values(), default=None)

    def pop_due(self, now: float) -> tuple[list[str], list[str]]:
        """Return (removed pods, pods to report) and mark them as sent. Both lists are oldest first."""
        removed = list(self._removed)
        self._removed.clear()
        due = sorted((when, uid) for uid, when in self._due.items() if when <= now)
        for _, uid in due:
            del self._due[uid]
            self._sent[uid] = now
        return removed, [uid for _, uid in due]

    def mark_all_sent(self, uids: list[str], now: float) -> None:
        """Mark the pods `uids` as reported by a Hello, and drop pending removals."""
        self._due.clear()
        self._removed.clear()
        self._sent = dict.fromkeys(uids, now)
