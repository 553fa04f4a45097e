"""Where a simulated job's time really went: the goodput ledger as one who sees everything would keep it.

It knows when a rank died, a node lost its power, a pod got its node and a step ended, at that very moment.
Of the operator it takes only when it decided. `convoy_controllers.trainingjob.goodput` is judged by it and
shares no code with it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import (
    ClusterEvent,
    FirstStep,
    StatusStored,
    TrainingPaused,
    TrainingResumed,
    TrainingStopped,
)
from convoy_controllers.simulate.gang import Gang
from convoy_controllers.simulate.machines import Machine
from convoy_crds.goodput import Cause
from convoy_crds.layout import slots
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase, TrainingJobStatus

HELD = (Phase.SUSPENDED, Phase.SUSPENDING)
STEPPING = "stepping"
"""Productive or recomputed: the step numbers tell which."""
COMING_UP = (Cause.SCHEDULE, Cause.START, Cause.RESTART, Cause.QUEUE)


@dataclass(slots=True)
class _Account:
    """One job's."""

    since: float
    """Unix seconds of the last turn."""
    mode: str = Cause.SCHEDULE
    blocked: bool = False
    """Pods of a job that is coming up find no node."""
    best: int = 0
    gang: Gang | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class GoodputTruth:
    """Of all jobs of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._accounts: dict[str, _Account] = {}
        self._lost: dict[str, float] = {}
        """By machine that is gone or cut off, since when."""
        cluster.listeners.append(self._on_event)
        cluster.api.listeners.append(self._told)
        cluster.machines.changed.append(self._reach_changed)

    def seconds(self, job_uid: str) -> dict[str, float]:
        """By cause, up to now; for a job that has ended, up to its end."""
        account = self._accounts[job_uid]
        self._turn(account, account.mode)
        return {cause: spent for cause, spent in account.seconds.items() if spent > 0}

    # What happens

    def _told(self, kind: str, name: str) -> None:
        """Pods and jobs as the API server has them."""
        if kind == "jobs" and (stored := self._cluster.api.jobs.get(name)) is not None:
            made = stored.job.metadata.creation_timestamp
            uid = stored.job.metadata.uid
            if uid not in self._accounts and made is not None:
                self._accounts[uid] = _Account(made.timestamp())
        elif kind == "pods":
            for stored in self._cluster.api.jobs.values():
                self._pods_changed(stored.job)

    def _reach_changed(self, machine: Machine) -> None:
        if machine.up and not machine.cut:
            self._lost.pop(machine.name, None)
        else:
            self._lost.setdefault(machine.name, self._cluster.kernel.now)

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case StatusStored(before, after, decided):
                self._decided(before.status, after, decided)
            case FirstStep(gang) | TrainingResumed(gang):
                account = self._accounts[gang.job_uid]
                stored = self._cluster.api.jobs.get(gang.job)
                newest = stored is not None and gang.incarnation == stored.job.status.incarnation
                if newest and account.mode not in (Cause.SUSPENDED, ""):
                    self._turn(account, STEPPING)
                    account.gang = gang
            case TrainingPaused(gang):
                self._gang_turns(gang, Cause.CHECKPOINT)
            case TrainingStopped(gang, hung):
                self._gang_turns(gang, Cause.DETECT, gang.last[1] if hung else None)
                account = self._accounts[gang.job_uid]
                if account.gang is gang:
                    # It may have stepped on for a moment after it was given up.
                    account.best = max(account.best, gang.last[0])
            case _:
                pass

    def _gang_turns(self, gang: Gang, mode: str, at: float | None = None) -> None:
        account = self._accounts[gang.job_uid]
        if account.gang is gang and account.mode in (STEPPING, Cause.CHECKPOINT):
            self._turn(account, mode, at)

    def _decided(self, before: TrainingJobStatus, after: TrainingJob, decided: float) -> None:
        account, status = self._accounts[after.metadata.uid], after.status
        if status.phase in TERMINAL and before.phase not in TERMINAL:
            self._turn(account, "", decided)
        elif status.phase in HELD and before.phase not in HELD:
            self._turn(account, Cause.SUSPENDED, decided)
        elif before.phase in HELD and status.phase not in HELD:
            self._turn(account, Cause.SCHEDULE, decided)
        elif status.restarts.total > before.restarts.total:
            self._restarts(account, after, decided)
        elif status.reason == Reasons.SCHEDULE_DEADLINE.name and before.reason != status.reason:
            self._turn(account, Cause.QUEUE, decided)
        else:
            self._pods_changed(after)

    def _restarts(self, account: _Account, job: TrainingJob, decided: float) -> None:
        """A restart ends the detection, but not one for the echo of a node's loss that is not known yet."""
        last = job.status.restarts.last
        nodes = {pod.node for pod in self._cluster.api.pods_of(job.metadata.name)}
        if last is not None and last.reason == Reasons.NODE_LOST.name:
            if account.mode == Cause.RESTART and last.node in self._lost:
                self._turn(account, Cause.DETECT, max(account.since, self._lost[last.node]))
        elif account.mode == Cause.DETECT and nodes & self._lost.keys():
            return
        self._turn(account, Cause.RESTART, decided)
        self._pods_changed(job)

    def _pods_changed(self, job: TrainingJob) -> None:
        """What a job that comes up waits for."""
        account = self._accounts[job.metadata.uid]
        if account.mode not in COMING_UP:
            return
        pods = [pod for pod in self._cluster.api.pods_of(job.metadata.name) if not pod.deleting]
        blocked = any(pod.unschedulable and not pod.node for pod in pods) and not job.status.membership
        if blocked != account.blocked:
            self._turn(account, account.mode)
            account.blocked = blocked
        mode = account.mode
        if mode == Cause.QUEUE and pods:
            mode = Cause.SCHEDULE
        if mode in (Cause.SCHEDULE, Cause.START):
            placed = sum(pod.node is not None for pod in pods)
            mode = Cause.START if placed >= len(slots(job)) or job.status.membership else Cause.SCHEDULE
        self._turn(account, mode)

    # The books

    def _turn(self, account: _Account, mode: str, at: float | None = None) -> None:
        """Books the time since the last turn."""
        now = self._cluster.kernel.now if at is None else at
        since, account.since = account.since, max(account.since, now)
        length = max(0.0, now - since)
        if account.mode == STEPPING and account.gang is not None:
            again = self._again(account, account.gang, since, now)
            account.seconds[Cause.RECOMPUTE] += again
            account.seconds[Cause.PRODUCTIVE] += length - again
            account.best = max(account.best, account.gang.at(now)[0])
        elif account.mode in COMING_UP and account.blocked:
            account.seconds[Cause.QUEUE] += length
        elif account.mode:
            account.seconds[account.mode] += length
        if mode != account.mode:
            account.blocked = False
        account.mode = mode

    def _again(self, account: _Account, gang: Gang, since: float, now: float) -> float:
        """Seconds from `since` on in which steps were made that had been made before."""
        if gang.at(since)[0] >= account.best or not gang.stretches:
            return 0.0
        return max(0.0, min(now, gang.when(account.best)) - since)
