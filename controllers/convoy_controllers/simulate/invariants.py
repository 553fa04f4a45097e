"""Checks rules that must hold at every moment of a simulated job, whatever fails.

The checks use the state of the simulated cluster: the processes that run, and what was stored at which
time. They do not use the operator's view.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from convoy_controllers.commands import Assign, PickPort
from convoy_controllers.simulate.cluster_events import ClusterEvent, CommandSent, RanksStarted, StatusStored
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_controllers.simulate.workers import LIVE
from convoy_controllers.trainingjob.nodes import strict
from convoy_controllers.views import PodView
from convoy_crds.goodput import totals
from convoy_crds.terms import LABEL_MEMBERSHIP
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster

LEDGER_SECONDS = 0.002
"""Maximum difference in seconds between the sum of the ledger and the job's age. The ledger counts
milliseconds.
"""
_SECONDS_BEFORE, _SECONDS_AFTER = 3.0, 60.0
"""Seconds before and after the change of a machine's state. A restart within this time may be due to the
change.
"""


@dataclass(slots=True)
class _JobHistory:
    """Facts about one job, with which later events are compared."""

    counted_restarts: list[float] = field(default_factory=list)
    """Decision times (Unix seconds) of the restarts that count against the budget."""
    pod_uids: dict[tuple[int, str], str] = field(default_factory=dict)
    """Uid of the pod that ran, by incarnation and pod name."""


class InvariantChecker:
    """Checks every event of a cluster, and raises InvariantViolation when an event breaks a rule."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._histories: defaultdict[str, _JobHistory] = defaultdict(_JobHistory)
        """History of each job, by job uid."""
        self._machine_changes: list[float] = []
        """Unix times in seconds at which the state of a machine changed."""
        cluster.listeners.append(self.check)
        cluster.machines.changed.append(lambda machine: self._machine_changes.append(cluster.kernel.now))

    def check(self, event: ClusterEvent) -> None:
        """Check one event against the rules."""
        match event:
            case StatusStored(after=TrainingJob()):
                self._check_status(event)
            case CommandSent(TrainingJob() as job, Assign() | PickPort() as command) if self._alone(command):
                self._check_alone(job, command)
            case CommandSent(TrainingJob() as job, Assign() | PickPort() as command):
                number, stored = command.incarnation, job.status.incarnation
                if not job.status.formed:
                    raise InvariantViolation(
                        f"a command for incarnation {number} was sent before a membership was stored"
                    )
                if number > stored:
                    raise InvariantViolation(
                        f"a command for incarnation {number} was sent, but the stored one is {stored}"
                    )
            case RanksStarted():
                self._check_start(event)
            case _:
                pass

    def _pod(self, uid: str) -> PodView | None:
        return next((pod for pod in self._cluster.api.pods.values() if pod.uid == uid), None)

    def _alone(self, command: Assign | PickPort) -> bool:
        """Return True if the command is for an Independent pod."""
        pod = self._pod(command.pod_uid)
        return pod is not None and LABEL_MEMBERSHIP in pod.labels

    def _check_alone(self, job: TrainingJob, command: Assign | PickPort) -> None:
        """Check a command for an Independent pod: its slot's incarnation must already be stored."""
        pod = self._pod(command.pod_uid)
        records = [
            one
            for one in job.status.internal.independent
            if pod is not None and pod.name == f"{job.metadata.name}-{one.role}-{one.replica}"
        ]
        if not records or not records[0].pod or command.incarnation > records[0].incarnation:
            raise InvariantViolation(
                f"a command for incarnation {command.incarnation} of an Independent pod was sent before "
                f"the incarnation was stored: {records}"
            )

    def _check_status(self, event: StatusStored) -> None:
        before, after = event.before.status, event.after.status
        if before.phase in TERMINAL and after.phase is not before.phase:
            raise InvariantViolation(
                f"the phase changed from {before.phase}, which is final, to {after.phase}"
            )
        if after.incarnation < before.incarnation:
            raise InvariantViolation(
                f"the incarnation decreased from {before.incarnation} to {after.incarnation}"
            )
        if after.restarts.total < before.restarts.total:
            raise InvariantViolation(
                f"the number of restarts decreased from {before.restarts.total} to {after.restarts.total}"
            )
        self._check_budget(event)
        self._check_ledger(event.before, event.after, event.decided)

    def _check_budget(self, event: StatusStored) -> None:
        before, after = event.before.status.restarts, event.after.status.restarts
        recovery = event.after.spec.recovery
        counted = self._histories[event.after.metadata.uid].counted_restarts
        if after.total > before.total + 1:
            raise InvariantViolation(
                f"one status adds {after.total - before.total} restarts, at most 1 is allowed"
            )
        if after.counted < before.counted and counted and self._machine_may_be_cause(counted[-1]):
            counted.pop()
        if after.total > before.total and after.last is not None and after.last.counted:
            counted.append(event.decided)
        start = event.decided - recovery.window_seconds
        inside = sum(at > start for at in counted)
        if inside > recovery.max_restarts:
            raise InvariantViolation(
                f"{inside} counted restarts within {recovery.window_seconds} s, "
                f"spec.recovery.maxRestarts allows {recovery.max_restarts}"
            )

    def _machine_may_be_cause(self, restart: float) -> bool:
        """Return True if the change of a machine may have caused a restart at the time `restart`."""
        return any(
            change - _SECONDS_BEFORE <= restart <= change + _SECONDS_AFTER for change in self._machine_changes
        )

    def _check_ledger(self, before: TrainingJob, after: TrainingJob, decided: float) -> None:
        """Check that the ledger's seconds add up to the job's age. After the job's end, check that the sum
        stays the same.
        """
        created, ledger = after.metadata.creation_timestamp, after.status.goodput
        if created is None:
            return
        booked = sum(totals(ledger, datetime.fromtimestamp(decided, UTC)).values())
        if before.status.phase in TERMINAL:
            age = sum(before.status.goodput.seconds.values())
        else:
            age = decided - created.timestamp()
        if abs(booked - age) > LEDGER_SECONDS:
            raise InvariantViolation(
                f"the ledger's sum is {booked:.3f} s, the job's age is {age:.3f} s: {ledger.seconds}"
            )
        if min(ledger.seconds.values(), default=0.0) < 0:
            raise InvariantViolation(f"the ledger has a negative entry: {ledger.seconds}")

    def _check_start(self, started: RanksStarted) -> None:
        history = self._histories[started.job_uid]
        first = history.pod_uids.setdefault((started.incarnation, started.pod), started.uid)
        if first != started.uid:
            raise InvariantViolation(f"two pods ran {started.pod} in incarnation {started.incarnation}")
        stored = self._cluster.api.jobs.get(started.job)
        job = stored.job if stored else None
        if not isinstance(job, TrainingJob) or job.metadata.uid != started.job_uid or not strict(job):
            return
        worker = self._cluster.workers.by_uid.get(started.uid)
        if worker is not None and worker.alone:
            return  # Independent pods need no fencing.
        for other in self._cluster.workers.by_uid.values():
            same = (other.job_uid, other.pod) == (started.job_uid, started.pod)
            if not same or other.uid == started.uid or not other.live:
                continue
            if any(rank.state in LIVE for rank in self._cluster.workers.slots[other.uid].ranks):
                raise InvariantViolation(f"two processes of {started.pod} ran at once under Strict fencing")
