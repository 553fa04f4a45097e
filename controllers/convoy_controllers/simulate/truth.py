"""The true goodput of a simulated job, computed by an observer who sees every event at once.

The observer knows the exact time at which a rank dies, a node loses its power, a pod is bound and a step
ends. From the operator it uses only the times of decisions. It serves to check
`convoy_controllers.trainingjob.goodput` and shares no code with it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from convoy_controllers.views import PodView
from convoy_crds.goodput import Cause
from convoy_crds.layout import slots
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import LABEL_MEMBERSHIP
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase, TrainingJobStatus

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster

SUSPENDED_PHASES = (Phase.SUSPENDED, Phase.SUSPENDING)
STEPPING = "stepping"
"""Mode of a job that makes steps. Whether they are productive or recomputed depends on the step numbers."""
STARTING_CAUSES = (Cause.SCHEDULE, Cause.START, Cause.RESTART, Cause.QUEUE)


@dataclass(slots=True)
class _Account:
    """The true ledger of one job."""

    since: float
    """Unix time in seconds at which the present cause began."""
    mode: str = Cause.SCHEDULE
    blocked: bool = False
    """True if the job is starting and its pods find no node."""
    best: int = 0
    """Newest step that any gang of the job has finished."""
    gang: Gang | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class GoodputTruth:
    """True ledgers of all jobs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._accounts: dict[str, _Account] = {}
        self._lost: dict[str, float] = {}
        """Unix time in seconds at which each machine lost its power or network. Contains only lost
        machines.
        """
        cluster.listeners.append(self._on_event)
        cluster.api.listeners.append(self._on_change)
        cluster.machines.changed.append(self._reach_changed)

    def seconds(self, job_uid: str) -> dict[str, float]:
        """Return the seconds of each cause up to now, or up to the job's end."""
        account = self._accounts[job_uid]
        self._switch_cause(account, account.mode)
        return {cause: spent for cause, spent in account.seconds.items() if spent > 0}

    # Events

    def _on_change(self, kind: str, name: str) -> None:
        """Handle the change of a job or a pod at the API server."""
        if kind == "jobs" and name in self._cluster.api.jobs:
            job = self._cluster.api.jobs[name].job
            made, uid = job.metadata.creation_timestamp, job.metadata.uid
            if isinstance(job, TrainingJob) and uid not in self._accounts and made is not None:
                self._accounts[uid] = _Account(made.timestamp())
        elif kind == "pods":
            for stored in self._cluster.api.jobs.values():
                if stored.job.metadata.uid in self._accounts:
                    self._pods_changed(stored.job)

    def _reach_changed(self, machine: Machine) -> None:
        if machine.up and not machine.cut:
            self._lost.pop(machine.name, None)
        else:
            self._lost.setdefault(machine.name, self._cluster.kernel.now)

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case StatusStored(before, TrainingJob() as after, decided):
                self._decided(before.status, after, decided)
            case FirstStep(gang) | TrainingResumed(gang):
                account = self._accounts[gang.job_uid]
                stored = self._cluster.api.jobs.get(gang.job)
                newest = stored is not None and gang.incarnation == stored.job.status.incarnation
                if newest and account.mode not in (Cause.SUSPENDED, ""):
                    self._switch_cause(account, STEPPING)
                    account.gang = gang
            case TrainingPaused(gang):
                self._gang_switches_cause(gang, Cause.CHECKPOINT)
            case TrainingStopped(gang, hung):
                self._gang_switches_cause(gang, Cause.DETECT, gang.last[1] if hung else None)
                account = self._accounts[gang.job_uid]
                if account.gang is gang:
                    # The gang may have made steps after the operator decided on a restart. Those steps count
                    # as finished too.
                    account.best = max(account.best, gang.last[0])
            case _:
                pass

    def _gang_switches_cause(self, gang: Gang, mode: str, at: float | None = None) -> None:
        account = self._accounts[gang.job_uid]
        if account.gang is gang and account.mode in (STEPPING, Cause.CHECKPOINT):
            self._switch_cause(account, mode, at)

    def _decided(self, before: TrainingJobStatus, after: TrainingJob, decided: float) -> None:
        account, status = self._accounts[after.metadata.uid], after.status
        if status.phase in TERMINAL and before.phase not in TERMINAL:
            self._switch_cause(account, "", decided)
        elif status.phase in SUSPENDED_PHASES and before.phase not in SUSPENDED_PHASES:
            self._switch_cause(account, Cause.SUSPENDED, decided)
        elif before.phase in SUSPENDED_PHASES and status.phase not in SUSPENDED_PHASES:
            self._switch_cause(account, Cause.SCHEDULE, decided)
        elif status.restarts.total > before.restarts.total:
            self._restarts(account, after, decided)
        elif status.reason == Reasons.SCHEDULE_DEADLINE.name and before.reason != status.reason:
            self._switch_cause(account, Cause.QUEUE, decided)
        else:
            self._pods_changed(after)

    def _restarts(self, account: _Account, job: TrainingJob, decided: float) -> None:
        """Switch the job's cause to `restart`. The time until the restart's decision counts as detection.

        A lost node may cause a restart before the operator knows of the loss. Then detection continues
        until the operator restarts the job because of the lost node.
        """
        last = job.status.restarts.last
        nodes = {pod.node for pod in self._group_pods(job)}
        if last is not None and last.reason == Reasons.NODE_LOST.name:
            if account.mode == Cause.RESTART and last.node in self._lost:
                self._switch_cause(account, Cause.DETECT, max(account.since, self._lost[last.node]))
        elif account.mode == Cause.DETECT and nodes & self._lost.keys():
            return
        self._switch_cause(account, Cause.RESTART, decided)
        self._pods_changed(job)

    def _pods_changed(self, job: TrainingJob) -> None:
        """For a starting job, set the cause of its waiting time according to its pods."""
        account = self._accounts[job.metadata.uid]
        if account.mode not in STARTING_CAUSES:
            return
        pods = [pod for pod in self._group_pods(job) if not pod.deleting]
        blocked = any(pod.unschedulable and not pod.node for pod in pods) and not job.status.formed
        if blocked != account.blocked:
            self._switch_cause(account, account.mode)
            account.blocked = blocked
        mode = account.mode
        if mode == Cause.QUEUE and pods:
            mode = Cause.SCHEDULE
        if mode in (Cause.SCHEDULE, Cause.START):
            placed = sum(pod.node is not None for pod in pods)
            mode = Cause.START if placed >= len(slots(job)) or job.status.formed else Cause.SCHEDULE
        self._switch_cause(account, mode)

    def _group_pods(self, job: TrainingJob) -> list[PodView]:
        """Return the pods of the job's process group. Independent pods cost the job no time."""
        pods = self._cluster.api.pods_of(job.metadata.name)
        return [pod for pod in pods if LABEL_MEMBERSHIP not in pod.labels]

    # Ledger

    def _switch_cause(self, account: _Account, mode: str, at: float | None = None) -> None:
        """Add the time since the last switch to the present cause, then change the cause."""
        now = self._cluster.kernel.now if at is None else at
        since, account.since = account.since, max(account.since, now)
        length = max(0.0, now - since)
        if account.mode == STEPPING and account.gang is not None:
            recomputed = self._recomputed(account, account.gang, since, now)
            account.seconds[Cause.RECOMPUTE] += recomputed
            account.seconds[Cause.PRODUCTIVE] += length - recomputed
            account.best = max(account.best, account.gang.at(now)[0])
        elif account.mode in STARTING_CAUSES and account.blocked:
            account.seconds[Cause.QUEUE] += length
        elif account.mode:
            account.seconds[account.mode] += length
        if mode != account.mode:
            account.blocked = False
        account.mode = mode

    def _recomputed(self, account: _Account, gang: Gang, since: float, now: float) -> float:
        """Return how many of the seconds from `since` to `now` repeated earlier steps."""
        if gang.at(since)[0] >= account.best or not gang.stretches:
            return 0.0
        return max(0.0, min(now, gang.when(account.best)) - since)
