"""When people are told that what a job saves does not get where it should."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_agents.tiercheck.troubles import Cause, Kind, Troubles, by_kind, with_message
from convoy_controllers.checkpoint.generation import Generation

REPORT_AFTER_SECONDS = 30.0
"""For which a store, or a node that is to keep copies, may stumble before anybody is told; what waiting does
not mend is told at once.
"""

ReportTroubles = Callable[[str, int, Mapping[str, str]], None]
"""(pod uid, incarnation, message by kind): all that is wrong now. Called when that is news."""

_RECORDS = Cause(Kind.NO_MEMORY, "records")
_LOST = Cause(Kind.LOST)
_STORE = Cause(Kind.NOT_STORED, "store")
_SHARD = Cause(Kind.NOT_STORED, "shard")
_RESTORE = Cause(Kind.NOT_RESTORED)


@dataclass(slots=True)
class _Pod:
    incarnation: int
    troubles: Troubles = field(default_factory=dict)
    store_failed_since: float | None = None
    """When the store first failed it since a generation got there."""
    copy_failed_since: dict[tuple[str, str], float] = field(default_factory=dict)
    """By node and shard: when that node first did not take that copy."""


class TroubleReporter:
    """Of the pods of one node. Each incarnation begins without any; an earlier one is not heard any more."""

    def __init__(self, report: ReportTroubles, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._pods: dict[str, _Pod] = {}

    def memory_refused(self, plan: Assignment, rank: int, what: str, why: str) -> None:
        """Something of a rank's, such as its slots, does not fit into the node's memory."""
        self._set(plan, Cause(Kind.NO_MEMORY, what, rank), f"rank {rank}: {why}")

    def memory_granted(self, plan: Assignment, rank: int, what: str) -> None:
        """It does."""
        self._set(plan, Cause(Kind.NO_MEMORY, what, rank), "")

    def record_not_written(self, plan: Assignment, generation: Generation, error: OSError) -> None:
        """The node's memory does not take a record."""
        self._set(plan, _RECORDS, f"{generation.name} is not written down: {error.strerror or error}")

    def record_written(self, plan: Assignment) -> None:
        """It has taken one."""
        self._set(plan, _RECORDS, "")

    def checkpoints_lost(self, plan: Assignment, why: str) -> None:
        """There were checkpoints, and the incarnation begins without. That stays so."""
        self._set(plan, _LOST, why)

    def inexact(self, plan: Assignment, rank: int, what: str) -> None:
        """A rank's journal did not make again what the training had made. Nobody says when it does."""
        self._set(plan, Cause(Kind.INEXACT, "journal", rank), f"rank {rank}: {what}")

    def not_stored(self, plan: Assignment, generation: Generation, error: StoreError) -> None:
        """The store does not take a shard, or the record. What is missing there is sent again."""
        pod = self._pod(plan)
        if pod is None:
            return
        now = self._clock()
        if pod.store_failed_since is None:
            pod.store_failed_since = now
        passing = error.retriable or isinstance(error, Missing)
        if not passing or now - pod.store_failed_since >= REPORT_AFTER_SECONDS:
            self._set(plan, _STORE, f"{generation.name}: {error}; it is tried again")

    def upload_failed(self, plan: Assignment, generation: Generation, error: BaseException) -> None:
        """An upload has ended before all shards were there, and is not tried again."""
        why = str(error) or type(error).__name__
        do = "; if that happens again, test the node's memory" if isinstance(error, Damaged) else ""
        self._set(plan, _SHARD, f"{generation.name}: {why}; the next generation is sent instead{do}")

    def stored(self, plan: Assignment) -> None:
        """A generation is there, whatever became of those before."""
        if (pod := self._pod(plan)) is not None:
            pod.store_failed_since = None
        self._set(plan, _STORE, "")
        self._set(plan, _SHARD, "")

    def not_copied(self, plan: Assignment, host: str, key: str, why: str) -> None:
        """A node does not take a shard's copy, or does not answer. It is tried again."""
        pod = self._pod(plan)
        if pod is None:
            return
        now = self._clock()
        since = pod.copy_failed_since.setdefault((host, key), now)
        if now - since >= REPORT_AFTER_SECONDS:
            self._set(plan, Cause(Kind.NOT_COPIED, host), why)

    def copied(self, plan: Assignment, host: str) -> None:
        """A node has all its copies of a generation, whatever became of those before."""
        if (pod := self._pod(plan)) is not None:
            pod.copy_failed_since = {
                key: since for key, since in pod.copy_failed_since.items() if key[0] != host
            }
        self._set(plan, Cause(Kind.NOT_COPIED, host), "")

    def not_restored(self, plan: Assignment, why: str) -> None:
        """The ranks wait for the store to begin: what is newest may be there alone."""
        self._set(plan, _RESTORE, why)

    def restorable(self, plan: Assignment) -> None:
        """It is known what they begin with."""
        self._set(plan, _RESTORE, "")

    def drop_pod(self, uid: str) -> None:
        """The pod left."""
        self._pods.pop(uid, None)

    def _pod(self, plan: Assignment) -> _Pod | None:
        """What is known of the pod in this incarnation; None when a later one has begun."""
        pod = self._pods.get(plan.pod_uid)
        if pod is None or pod.incarnation < plan.incarnation:
            pod = self._pods[plan.pod_uid] = _Pod(plan.incarnation)
        return pod if pod.incarnation == plan.incarnation else None

    def _set(self, plan: Assignment, cause: Cause, message: str) -> None:
        pod = self._pod(plan)
        if pod is None:
            return
        troubles = with_message(pod.troubles, cause, message)
        if troubles is not pod.troubles:
            pod.troubles = troubles
            self._report(plan.pod_uid, plan.incarnation, by_kind(troubles))
