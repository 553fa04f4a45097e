"""Checks rules that must hold at every moment of a simulated ServingJob, whatever fails.

The checks use the state of the simulated cluster, not the operator's view. From the operator they use only
the spec on which a plan was based.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from convoy_controllers.servingjob.groups import group_of
from convoy_controllers.simulate.cluster_events import (
    ClusterEvent,
    FaultInjected,
    PlanMade,
    PodDeleted,
    StatusStored,
)
from convoy_controllers.simulate.serving import limits
from convoy_controllers.simulate.serving.jobs import ServingJobs
from convoy_controllers.simulate.serving.requests import Cause, Outcome
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_controllers.views import PodView
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS
from convoy_crds.servingjob_status import ServingJobStatus
from convoy_crds.terms import LABEL_INDEX, ConditionType

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster

FAULT_SECONDS = 60.0
"""Seconds after a fault in which requests may fail."""
REPORT_SECONDS, STALL_SECONDS, SILENT_SECONDS = 1.0, 10.0, 30.0
"""Seconds until the operator knows that a replica does not serve: because a rank ended, because a rank hangs,
or because a node is lost.
"""
CONVERGE_SECONDS = 900.0
"""Seconds within which a job that has not reached its goal must make progress, or say why it does not."""
_SOUND = {
    ConditionType.VALID: "True",
    ConditionType.PROGRESSING: "True",
    ConditionType.MODEL_READY: "True",
    ConditionType.DEGRADED: "False",
    ConditionType.SUSPENDED: "False",
}
"""Status of the conditions of a job that lacks nothing. Another status is a reason for missing progress."""

Group = tuple[str, int]
"""Role and number of a replica."""


@dataclass(slots=True)
class _JobHistory:
    """Facts about one job, with which later events are compared."""

    spec: ServingJob | None = None
    """The job on which the newest plan was based."""
    available: set[Group] = field(default_factory=set)
    """The replicas that got requests when this was last checked."""
    lost: set[Group] = field(default_factory=set)
    """The replicas with a pod on a node that cannot be reached."""
    unnoticed: dict[Group, float] = field(default_factory=dict)
    """Unix time in seconds from which on the operator must know that a replica stopped to serve."""
    progress_at: float = 0.0
    """Unix time in seconds of the last status that differs from the one before in more than its traffic."""
    calm: bool = False
    """True if all desired replicas have been ready since the last fault."""


class ServingInvariants:
    """Checks the events of a cluster, and raises InvariantViolation when an event breaks a rule."""

    def __init__(self, cluster: Cluster, jobs: ServingJobs) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._histories: defaultdict[str, _JobHistory] = defaultdict(_JobHistory)
        """History of each job, by name."""
        self._fault_at = 0.0
        """Unix time in seconds of the last fault."""
        self._edited_at = 0.0
        self._pods: set[str] = set()
        """Uids of all pods that were ever seen."""
        self._slow_proxies = 1.25 * cluster.latencies.endpoints > ENDPOINT_LAG_SECONDS - 1
        """True if proxies are slower than Convoy supposes. Readiness is known in whole seconds only."""
        cluster.listeners.append(self._on_event)
        cluster.api.listeners.append(self._on_change)
        jobs.availability_changed.append(self._update)
        jobs.request_ended.append(self._check_request)

    # Events

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case PlanMade(observed) if isinstance(observed.job, ServingJob):
                self._planned(observed.job)
            case PodDeleted(job, name, uid):
                pod = self._cluster.api.pods.get(name)
                if job in self._histories and pod is not None and pod.uid == uid and not pod.deleting:
                    self._check_deletion(job, pod)
            case StatusStored(before, ServingJob() as after):
                if _without_traffic(before) != _without_traffic(after):
                    self._histories[after.metadata.name].progress_at = self._cluster.kernel.now
            case FaultInjected(_, harmless):
                self._edited_at = self._cluster.kernel.now
                if not harmless:
                    self._fault_at = self._cluster.kernel.now
                    for history in self._histories.values():
                        history.calm = False
            case _:
                pass

    def _planned(self, job: ServingJob) -> None:
        history, spec = self._histories[job.metadata.name], job.spec
        history.spec = job
        role = spec.serving_role
        # At 0 replicas, activators must lose no request either.
        least = int(spec.scales_to_zero)
        if spec.suspend or max(least, limits.floor(job, role)) < 1:
            history.calm = False
        elif self._cluster.kernel.now >= self._fault_at + FAULT_SECONDS:
            enough = self._jobs.serving(job.metadata.name) >= max(least, job.desired(role))
            # While the API server is away, no proxy learns of a replica that stopped to serve.
            history.calm = history.calm or (enough and self._cluster.api.up)

    def _on_change(self, kind: str, name: str) -> None:
        pod = self._cluster.api.pods.get(name) if kind == "pods" else None
        if pod is not None and pod.uid not in self._pods:
            self._pods.add(pod.uid)
            self._check_creation(pod)

    # Replicas

    def _groups(self, job: str, role: str) -> dict[Group, list[PodView]]:
        """Return the pods of each replica of a role that are not being deleted."""
        found: dict[Group, list[PodView]] = {}
        for pod in self._cluster.api.pods_of(job):
            key = group_of(pod)
            if key is not None and key[0] == role and not pod.deleting:
                found.setdefault(key, []).append(pod)
        return found

    def _serves(self, job: str, pods: list[PodView]) -> bool:
        """Return True if all pods of a replica are ready, in truth and at the API server. If requests go to
        the role, the proxies must know slot 0 too.
        """
        ranks, known = self._jobs.program, self._jobs.proxies.known(job)
        if not all(pod.ready and ranks.ready(pod.uid) and ranks.reachable(pod.uid) for pod in pods):
            return False
        head = next((pod for pod in pods if pod.labels.get(LABEL_INDEX) == "0"), None)
        replica = ranks.by_pod.get(head.uid) if head else None
        if head is None or replica is None or not replica.whole or len(pods) < replica.size:
            return False
        spec = self._histories[job].spec
        serving = spec is not None and replica.role == spec.spec.serving_role
        return head.uid in known or not serving or self._slow_proxies

    def _update(self, job: str) -> None:
        """Record which replicas stopped to serve without a deletion by Convoy."""
        history = self._histories.get(job)
        if history is None or history.spec is None:
            return
        roles = [role.name for role in history.spec.spec.roles]
        groups = {key: pods for role in roles for key, pods in self._groups(job, role).items()}
        now = {key for key, pods in groups.items() if self._serves(job, pods)}
        for key in history.available - now:
            history.unnoticed[key] = self._cluster.kernel.now + self._notice_seconds(groups.get(key, []))
        reachable = self._jobs.program.reachable
        lost = {key for key, pods in groups.items() if not all(reachable(pod.uid) for pod in pods)}
        for key in lost - history.lost:
            # The replica may not have got requests before, or its ranks may have ended a moment earlier.
            history.unnoticed[key] = self._cluster.kernel.now + SILENT_SECONDS
        history.available, history.lost = now, lost

    def _notice_seconds(self, pods: list[PodView]) -> float:
        """Return the seconds until the operator knows that these pods of a replica do not serve."""
        ranks = self._jobs.program
        if any(not ranks.reachable(pod.uid) for pod in pods):
            return SILENT_SECONDS
        replicas = [ranks.by_pod.get(pod.uid) for pod in pods]
        ended = any(replica is None or replica.ended for replica in replicas)
        return REPORT_SECONDS if ended else STALL_SECONDS

    def _check_deletion(self, job: str, pod: PodView) -> None:
        history, key = self._histories[job], group_of(pod)
        if history.spec is None or key is None or history.spec.spec.suspend:
            return
        self._update(job)
        if key not in history.available:
            return
        role, now = key[0], self._cluster.kernel.now
        history.available.discard(key)
        left = {one for one in history.available if one[0] == role}
        unnoticed = {one for one, at in history.unnoticed.items() if one[0] == role and now < at} - {key}
        floor = limits.floor(history.spec, role)
        if len(left | unnoticed) < floor:
            raise InvariantViolation(
                f"{job}: the deletion of {pod.name} leaves {len(left)} available replicas of role {role}, "
                f"spec.rollout demands {floor}"
            )

    def _check_creation(self, pod: PodView) -> None:
        job, key = self._owner(pod), group_of(pod)
        if job is None or key is None:
            return
        most = limits.most(job, key[0])
        there = len(self._groups(job.metadata.name, key[0]))
        if there > most:
            raise InvariantViolation(
                f"{job.metadata.name}: with {pod.name} there are {there} replicas of role {key[0]}, "
                f"spec.rollout allows {most}"
            )

    def _owner(self, pod: PodView) -> ServingJob | None:
        found = (history.spec for history in self._histories.values())
        return next((job for job in found if job is not None and job.metadata.uid == pod.owner_uid), None)

    # Requests

    def _check_request(self, name: str, outcome: Outcome, cause: Cause) -> None:
        """Check that no request is lost or refused while nothing fails."""
        if outcome in (Outcome.OK, Outcome.SHED) or cause is Cause.DRAIN or self._slow_proxies:
            return
        if self._histories[name].calm:
            raise InvariantViolation(
                f"{name}: a request {outcome} {cause}".rstrip() + " although no fault was injected"
            )

    # The end

    def check_end(self, job: ServingJob) -> None:
        """Check that a job has reached its goal, still makes progress, or says why it does not."""
        name, now = job.metadata.name, self._cluster.kernel.now
        since = max(self._edited_at, self._histories[name].progress_at)
        if now < since + CONVERGE_SECONDS or not self._cluster.operator.leading or self._loads(name):
            return
        status = {one.type: one.status for one in job.status.conditions}
        explained = any(status.get(kind, holds) != holds for kind, holds in _SOUND.items())
        if not explained and job.status.reason != Reasons.ROLLOUT_COMPLETE.name:
            raise InvariantViolation(
                f"{name}: no progress for {CONVERGE_SECONDS:.0f} s without a reason: {job.status.message}"
            )

    def _loads(self, job: str) -> bool:
        replicas = self._jobs.program.by_pod.values()
        return any(one.job == job and not one.loaded and not one.ended for one in replicas)


def _without_traffic(job: ServingJob) -> ServingJobStatus:
    return job.status.model_copy(update={"traffic": None})
