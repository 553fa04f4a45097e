"""When people are told that what a job saves does not get where it should."""

from __future__ import annotations

import time
from collections.abc import Callable

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.stores.errors import Missing, StoreError
from convoy_controllers.checkpoint.generation import Generation

PATIENCE_SECONDS = 30.0
"""For which a store may stumble before anybody is told; what waiting does not mend is told at once."""

Troubled = Callable[[str, int, str, str], None]
"""(pod uid, incarnation, kind, message) is to be told; without a message it is over."""


class Alarms:
    """Of the pods of one node."""

    def __init__(self, troubled: Troubled, clock: Callable[[], float] = time.monotonic) -> None:
        self._troubled = troubled
        self._clock = clock
        self._since: dict[str, tuple[int, float]] = {}
        """By pod: its incarnation, and when the store first failed it since a generation got there."""

    def not_noted(self, plan: Assignment, generation: Generation, error: OSError) -> None:
        """The node's memory does not take a record."""
        why = f"{generation.name} is not written down: {error.strerror or error}"
        self._troubled(plan.pod_uid, plan.incarnation, "NO_MEMORY", why)

    def noted(self, plan: Assignment) -> None:
        """It has taken one."""
        self._troubled(plan.pod_uid, plan.incarnation, "NO_MEMORY", "")

    def not_stored(self, plan: Assignment, generation: Generation, error: StoreError) -> None:
        """The store does not take a shard, or the record. What is missing there is sent again."""
        now = self._clock()
        incarnation, since = self._since.get(plan.pod_uid, (0, now))
        if incarnation != plan.incarnation:
            since = now
            self._since[plan.pod_uid] = (plan.incarnation, now)
        passing = error.retriable or isinstance(error, Missing)
        if not passing or now - since >= PATIENCE_SECONDS:
            self._troubled(plan.pod_uid, plan.incarnation, "NOT_STORED", f"{generation.name}: {error}")

    def stored(self, plan: Assignment) -> None:
        """A generation is there."""
        self._since.pop(plan.pod_uid, None)
        self._troubled(plan.pod_uid, plan.incarnation, "NOT_STORED", "")

    def forget(self, uid: str) -> None:
        """The pod left."""
        self._since.pop(uid, None)
