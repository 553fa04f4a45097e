"""Collects troubles with a job's checkpoints, and reports them to the operator. A trouble that may pass by
itself is reported only after REPORT_AFTER_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_agents.tiercheck.troubles import Cause, Kind, Troubles, by_kind, with_message
from convoy_controllers.checkpoint.generation import Generation

REPORT_AFTER_SECONDS = 30.0
"""Seconds for which a store, or a node that keeps copies, may fail before the trouble is reported.
Permanent errors are reported at once.
"""

ReportTroubles = Callable[[str, int, Mapping[str, str]], None]
"""A callback that is called when the troubles of a pod have changed. It gets the pod's uid, the
incarnation, and a message for each kind of trouble that the pod now has.
"""

_RECORDS = Cause(Kind.NO_MEMORY, "records")
_LOST = Cause(Kind.LOST)
_STORE = Cause(Kind.NOT_STORED, "store")
_SHARD = Cause(Kind.NOT_STORED, "shard")
_RESTORE = Cause(Kind.NOT_RESTORED)
_YIELDED = Cause(Kind.YIELDED)


@dataclass(slots=True)
class _Pod:
    incarnation: int
    troubles: Troubles = field(default_factory=dict)
    store_failed_since: float | None = None
    """Time of the store's first failure after the last stored generation, in seconds of the reporter's
    clock. None if the store has not failed since then.
    """
    copy_failed_since: dict[tuple[str, str], float] = field(default_factory=dict)
    """Time of the first failure of each copy, in seconds of the reporter's clock, by (node, shard id)."""


class TroubleReporter:
    """The troubles of the pods on one node. Each incarnation starts without troubles. Reports on earlier
    incarnations are ignored.
    """

    def __init__(self, report: ReportTroubles, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._pods: dict[str, _Pod] = {}

    def memory_refused(self, plan: Assignment, rank: int, what: str, why: str) -> None:
        """Record that a rank's request for memory was refused. `what`: the purpose, such as saving."""
        self._set(plan, Cause(Kind.NO_MEMORY, what, rank), f"rank {rank}: {why}")

    def memory_granted(self, plan: Assignment, rank: int, what: str) -> None:
        """End the trouble that `memory_refused` recorded for this rank and purpose."""
        self._set(plan, Cause(Kind.NO_MEMORY, what, rank), "")

    def yielded(self, plan: Assignment, why: str) -> None:
        """Record that the job's memory on this node went to other jobs. An empty `why` ends the trouble."""
        self._set(plan, _YIELDED, why)

    def record_not_written(self, plan: Assignment, generation: Generation, error: OSError) -> None:
        """Record that the memory of this node has no space for a generation's record."""
        self._set(
            plan,
            _RECORDS,
            f"{generation.name}: its record cannot be written to memory: {error.strerror or error}",
        )

    def record_written(self, plan: Assignment) -> None:
        """End the trouble that `record_not_written` recorded."""
        self._set(plan, _RECORDS, "")

    def checkpoints_lost(self, plan: Assignment, why: str) -> None:
        """Record that earlier checkpoints existed, but this incarnation starts without them. This trouble
        lasts until the incarnation ends.
        """
        self._set(plan, _LOST, why)

    def inexact(self, plan: Assignment, rank: int, what: str) -> None:
        """Record that a rank's journal replay did not reproduce the training's state. This trouble lasts
        until the incarnation ends.
        """
        self._set(plan, Cause(Kind.INEXACT, "journal", rank), f"rank {rank}: {what}")

    def not_stored(self, plan: Assignment, generation: Generation, error: StoreError) -> None:
        """Record that the store did not accept a shard or a record. The agent retries the upload."""
        pod = self._pod(plan)
        if pod is None:
            return
        now = self._clock()
        if pod.store_failed_since is None:
            pod.store_failed_since = now
        passing = error.retriable or isinstance(error, Missing)
        if not passing or now - pod.store_failed_since >= REPORT_AFTER_SECONDS:
            self._set(plan, _STORE, f"{generation.name}: {error}; the upload is tried again")

    def upload_failed(self, plan: Assignment, generation: Generation, error: BaseException) -> None:
        """Record that an upload ended before all shards were stored. The agent does not retry it, but
        uploads the next generation that is chosen for the store.
        """
        why = str(error) or type(error).__name__
        do = "; if that happens again, test the node's memory" if isinstance(error, Damaged) else ""
        self._set(plan, _SHARD, f"{generation.name}: {why}; the next generation is uploaded instead{do}")

    def stored(self, plan: Assignment) -> None:
        """Record that a generation is in the store. This also ends the store troubles of earlier
        generations.
        """
        if (pod := self._pod(plan)) is not None:
            pod.store_failed_since = None
        self._set(plan, _STORE, "")
        self._set(plan, _SHARD, "")

    def not_copied(self, plan: Assignment, host: str, key: str, why: str) -> None:
        """Record that a node does not accept the copy of a shard, or does not answer. The agent retries the
        copy.
        """
        pod = self._pod(plan)
        if pod is None:
            return
        now = self._clock()
        since = pod.copy_failed_since.setdefault((host, key), now)
        if now - since >= REPORT_AFTER_SECONDS:
            self._set(plan, Cause(Kind.NOT_COPIED, host), why)

    def copied(self, plan: Assignment, host: str) -> None:
        """Record that a node has all copies that the pod sent it. This ends the pod's copy troubles with
        that node, also those of earlier generations.
        """
        if (pod := self._pod(plan)) is not None:
            pod.copy_failed_since = {
                key: since for key, since in pod.copy_failed_since.items() if key[0] != host
            }
        self._set(plan, Cause(Kind.NOT_COPIED, host), "")

    def not_restored(self, plan: Assignment, why: str) -> None:
        """Record that the restore waits for a store that does not answer, because only the store may have
        the newest checkpoint.
        """
        self._set(plan, _RESTORE, why)

    def restorable(self, plan: Assignment) -> None:
        """Record that the restore decision was made. This ends the trouble that `not_restored` recorded."""
        self._set(plan, _RESTORE, "")

    def drop_pod(self, uid: str) -> None:
        """Drop the troubles of a pod that left the node."""
        self._pods.pop(uid, None)

    def _pod(self, plan: Assignment) -> _Pod | None:
        """Return the troubles of the pod in this incarnation; None if a later incarnation has started."""
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
