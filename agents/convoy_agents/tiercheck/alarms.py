"""When people are told that what a job saves does not get where it should."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_agents.tiercheck.troubles import Cause, Kind, Troubles, by_kind, told
from convoy_controllers.checkpoint.generation import Generation

PATIENCE_SECONDS = 30.0
"""For which a store may stumble before anybody is told; what waiting does not mend is told at once."""

Troubled = Callable[[str, int, Mapping[str, str]], None]
"""(pod uid, incarnation, message by kind): all that is wrong now. Called when that is news."""

_RECORDS = Cause(Kind.NO_MEMORY, "records")
_LOST = Cause(Kind.LOST)
_STORE = Cause(Kind.NOT_STORED, "store")
_SHARD = Cause(Kind.NOT_STORED, "shard")


@dataclass(slots=True)
class _Pod:
    incarnation: int
    troubles: Troubles = field(default_factory=dict)
    since: float | None = None
    """When the store first failed it since a generation got there."""


class Alarms:
    """Of the pods of one node. Each incarnation begins without any; an earlier one is not heard any more."""

    def __init__(self, troubled: Troubled, clock: Callable[[], float] = time.monotonic) -> None:
        self._troubled = troubled
        self._clock = clock
        self._pods: dict[str, _Pod] = {}

    def no_room(self, plan: Assignment, rank: int, what: str, why: str) -> None:
        """Something of a rank's, such as its slots, does not fit into the node's memory."""
        self._tell(plan, Cause(Kind.NO_MEMORY, what, rank), f"rank {rank}: {why}")

    def room(self, plan: Assignment, rank: int, what: str) -> None:
        """It does."""
        self._tell(plan, Cause(Kind.NO_MEMORY, what, rank), "")

    def not_noted(self, plan: Assignment, generation: Generation, error: OSError) -> None:
        """The node's memory does not take a record."""
        self._tell(plan, _RECORDS, f"{generation.name} is not written down: {error.strerror or error}")

    def noted(self, plan: Assignment) -> None:
        """It has taken one."""
        self._tell(plan, _RECORDS, "")

    def lost(self, plan: Assignment, why: str) -> None:
        """There were checkpoints, and the incarnation begins without. That stays so."""
        self._tell(plan, _LOST, why)

    def inexact(self, plan: Assignment, rank: int, what: str) -> None:
        """A rank's journal did not make again what the training had made. Nobody says when it does."""
        self._tell(plan, Cause(Kind.INEXACT, "journal", rank), f"rank {rank}: {what}")

    def not_stored(self, plan: Assignment, generation: Generation, error: StoreError) -> None:
        """The store does not take a shard, or the record. What is missing there is sent again."""
        pod = self._pod(plan)
        if pod is None:
            return
        now = self._clock()
        if pod.since is None:
            pod.since = now
        passing = error.retriable or isinstance(error, Missing)
        if not passing or now - pod.since >= PATIENCE_SECONDS:
            self._tell(plan, _STORE, f"{generation.name}: {error}; it is tried again")

    def not_sent(self, plan: Assignment, generation: Generation, error: BaseException) -> None:
        """An upload has ended before all shards were there, and is not tried again."""
        why = str(error) or type(error).__name__
        do = "; if that happens again, test the node's memory" if isinstance(error, Damaged) else ""
        self._tell(plan, _SHARD, f"{generation.name}: {why}; the next generation is sent instead{do}")

    def stored(self, plan: Assignment) -> None:
        """A generation is there, whatever became of those before."""
        if (pod := self._pod(plan)) is not None:
            pod.since = None
        self._tell(plan, _STORE, "")
        self._tell(plan, _SHARD, "")

    def forget(self, uid: str) -> None:
        """The pod left."""
        self._pods.pop(uid, None)

    def _pod(self, plan: Assignment) -> _Pod | None:
        """What is known of the pod in this incarnation; None when a later one has begun."""
        pod = self._pods.get(plan.pod_uid)
        if pod is None or pod.incarnation < plan.incarnation:
            pod = self._pods[plan.pod_uid] = _Pod(plan.incarnation)
        return pod if pod.incarnation == plan.incarnation else None

    def _tell(self, plan: Assignment, cause: Cause, message: str) -> None:
        pod = self._pod(plan)
        if pod is None:
            return
        troubles = told(pod.troubles, cause, message)
        if troubles is not pod.troubles:
            pod.troubles = troubles
            self._troubled(plan.pod_uid, plan.incarnation, by_kind(troubles))
