"""Which pods are to be reported to the hub, and when. Pure; holds names, a report is made when it is sent."""

from __future__ import annotations

from convoy_agents.pods.state import Urgency
from convoy_controllers.liveness.timings import REPORT_SECONDS

NOW_SECONDS = 0.05
"""Between two reports of a pod whose state changes: a pod that flaps costs 20 messages a second, no more."""

MAX_REMOVED = 4096
"""Reached only while no session is up, and the next Hello says it all anyway."""


class Outbox:
    """At most one entry per pod: a later report replaces the earlier. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        self._removed: dict[str, None] = {}

    def put(self, uid: str, urgency: Urgency, now: float) -> None:
        """Notes a change; an urgent one draws an entry that waits nearer, never further away."""
        if urgency is Urgency.NONE:
            return
        gap = NOW_SECONDS if urgency is Urgency.NOW else REPORT_SECONDS
        due = max(now, self._sent.get(uid, -REPORT_SECONDS + now) + gap)
        self._due[uid] = min(due, self._due.get(uid, due))

    def add_removed(self, uid: str) -> None:
        """The pod left the node: nothing more of it but that."""
        self._due.pop(uid, None)
        self._sent.pop(uid, None)
        self._removed[uid] = None
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]

    def next_due(self) -> float | None:
        """When `take` will next return something; None while there is nothing to say."""
        if self._removed:
            return 0.0
        return min(self._due.values(), default=None)

    def pop_due(self, now: float) -> tuple[list[str], list[str]]:
        """(pods that are gone, pods to report), each oldest first; they count as sent."""
        removed = list(self._removed)
        self._removed.clear()
        due = sorted((when, uid) for uid, when in self._due.items() if when <= now)
        for _, uid in due:
            del self._due[uid]
            self._sent[uid] = now
        return removed, [uid for _, uid in due]

    def mark_all_sent(self, uids: list[str], now: float) -> None:
        """A Hello carried the reports of all `uids` and leaves out what is gone."""
        self._due.clear()
        self._removed.clear()
        self._sent = dict.fromkeys(uids, now)
