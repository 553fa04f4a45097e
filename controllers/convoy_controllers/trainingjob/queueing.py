"""The job in its Kueue queue: which Workload asks for its quota, and what the queue's answer means.

The job's label `kueue.x-k8s.io/queue-name` names the queue. Pods run only while the job's Workload is
admitted. Each pod names its Workload in an annotation. Pods of another Workload than the job's present one
end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.kueue.admission import Admission, Stage, admission
from convoy_controllers.placement.kueue.names import (
    ANNOTATION_WORKLOAD,
    LABEL_CAPTURED,
    LABEL_QUEUE,
)
from convoy_controllers.placement.kueue.workload import PodSet, wishes, workload_name
from convoy_controllers.resources import KUEUE_WORKLOADS
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.validity import violation
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import first_slots
from convoy_crds.placement import Pack, PlacementStatus, QueueState, QueueStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import Role, TrainingJob
from convoy_crds.trainingjob_status import Phase

UNSERVED_SECONDS = 30.0
"""Seconds between two checks for the API of Kueue."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a job, and the job's Workload."""

    name: str
    """Name of the LocalQueue."""
    workload: str
    """Name of the Workload."""
    stored: CachedObject | None = None
    """The Workload; None if it does not exist yet."""
    admission: Admission | None = None
    """The state of `stored`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The reason for which all pods of a job must end."""

    reason: Reason
    facts: Mapping[str, str]

    def violation(self, state: str) -> Violation:
        """Return the reason with its message. `state`: what happens to the job's state."""
        return Violation(self.reason, self.reason.format(**self.facts, state=state))


def queue_name(job: TrainingJob) -> str:
    """Return the name of the job's LocalQueue; empty without a queue."""
    return job.metadata.labels.get(LABEL_QUEUE, "")


def queue_of(observed: Observed) -> str:
    """Return the name of the job's LocalQueue; empty without a queue.

    A job that runs without a placement in its status was started by a release of the operator that knew no
    queues. It joins its queue at its next start without pods.
    """
    own = own_pods(observed)
    queued = any(one.annotations.get(ANNOTATION_WORKLOAD) for one in own)
    return "" if own and not queued and observed.job.status.placement is None else queue_name(observed.job)


def own_pods(observed: Observed) -> list[PodView]:
    """Return the pods that the job owns, those that have ended too."""
    return [one for one in observed.pods if one.owner_uid == observed.job.metadata.uid]


def find(observed: Observed) -> Queue | None:
    """Return the job's queue and its present Workload; None without a queue.

    A job that has started keeps the Workload that its pods name, because its shape cannot have changed. All
    others have the Workload of their present shape.
    """
    name = queue_of(observed)
    if not name:
        return None
    known = {one.name: one for one in observed.queue.workloads}
    named = {one.annotations.get(ANNOTATION_WORKLOAD, "") for one in own_pods(observed)}
    started = observed.job.status.phase not in (None, Phase.PENDING)
    kept = next((known[one] for one in named if one in known), None)
    if started and kept is not None and (kept.raw.get("spec") or {}).get("queueName") == name:
        return Queue(name, kept.name, kept, admission(kept.raw))
    if violation(observed) is not None:
        # The pods of an invalid job are unknown, so its Workload is too.
        return Queue(name, "")
    wanted = workload_name(observed.job.metadata.name, observed.job.metadata.uid, name, pod_sets(observed))
    stored = known.get(wanted)
    return Queue(name, wanted, stored, admission(stored.raw) if stored else None)


def pod_sets(observed: Observed) -> list[PodSet]:
    """Return the pods of each role as the queue counts them. Independent roles need quota too."""
    job = observed.job
    first = first_slots(job)
    found = []
    for role in job.spec.roles:
        body = pod(job, observed.engine, first[role.name], observed.defaults)
        level = _level(job, observed.queue.levels)
        found.append(
            PodSet(
                name=role.name,
                count=role.replicas,
                spec=body["spec"],
                min_count=0 if role.independent else role.min_replicas or 0,
                pack=Pack.NONE if role.independent else job.spec.placement.pack,
                level=level,
            )
        )
    return found


def _level(job: TrainingJob, levels: Iterable[str]) -> str:
    """Return the first topology key, if the queue's topologies have it; otherwise nothing. A queue without it
    would never admit the job, and Convoy itself places the pods.
    """
    keys = job.spec.placement.topology_keys
    return keys[0] if keys and keys[0] in levels else ""


def stop(observed: Observed) -> Stop | None:
    """Return the reason for which the job's pods must end; None if they may run, or if there are none."""
    own = own_pods(observed)
    # Without Kueue's API nothing is known about the quota. Running jobs go on.
    if not own or KUEUE_WORKLOADS not in observed.served:
        return None
    queue = find(observed)
    expected = queue.workload if queue else ""
    if queue is not None and not queue.workload:
        return None
    for one in own:
        before = one.annotations.get(ANNOTATION_WORKLOAD, "")
        if before != expected:
            facts = {
                "queue": f"{expected} in LocalQueue {queue.name}" if queue else "none",
                "before": f"Workload {before}" if before else "no queue",
            }
            return Stop(Reasons.QUEUE_CHANGED, facts)
    if queue is None or queue.admission is None or queue.admission.stage is Stage.ADMITTED:
        # A Workload that is missing in the cache is applied again. Its state then decides.
        return None
    state = queue.admission
    if state.stage is Stage.WAITING:
        return Stop(Reasons.QUEUE_LOST, {"workload": queue.workload, "why": state.message})
    facts = {"queue": queue.name, "cause": state.cause or state.stage.value, "why": state.message}
    return Stop(Reasons.QUEUE_EVICTED, facts)


def hold(observed: Observed) -> Violation | None:
    """Return the reason for which the job must not create pods; None if it may, or if it has no queue."""
    if not queue_of(observed) or violation(observed) is not None:
        return None
    if KUEUE_WORKLOADS not in observed.served:
        if own_pods(observed):
            return None
        reason = Reasons.QUEUE_MISSING
        api = f"{KUEUE_WORKLOADS.api_version} ({KUEUE_WORKLOADS.kind})"
        return Violation(reason, reason.format(queue=queue_name(observed.job), api=api))
    queue = find(observed)
    if queue is None or (queue.admission is None and own_pods(observed)):
        return None
    state = queue.admission
    if state is not None and state.stage is Stage.ADMITTED:
        if not state.fault or own_pods(observed):
            return None
        why = f"Convoy cannot read Workload {queue.workload}, update Convoy: {state.fault}"
        return Violation(Reasons.QUEUE_WAITING, Reasons.QUEUE_WAITING.format(queue=queue.name, why=why))
    if state is not None and state.stage is Stage.INACTIVE:
        reason = Reasons.QUEUE_INACTIVE
        return Violation(reason, reason.format(workload=queue.workload, why=state.message))
    if refusal := observed.create_errors.get(queue.workload):
        reason = Reasons.QUEUE_REFUSED
        return Violation(reason, reason.format(workload=queue.workload, why=refusal.message))
    if unknown := observed.queue.priority.unknown:
        reason = Reasons.QUEUE_PRIORITY_MISSING
        return Violation(reason, reason.format(name=unknown))
    if wrong := wishes(observed.job.metadata.labels, observed.job.metadata.annotations).wrong:
        return Violation(Reasons.QUEUE_WAITING, Reasons.QUEUE_WAITING.format(queue=queue.name, why=wrong))
    why = state.message if state is not None else "Convoy creates its Workload"
    if state is not None and state.stage is Stage.FINISHED:
        why = f"Workload {queue.workload} is finished ({why}); delete it to queue the job again"
    return Violation(Reasons.QUEUE_WAITING, Reasons.QUEUE_WAITING.format(queue=queue.name, why=why))


def report(draft: Draft, held: Violation | None = None) -> None:
    """Set the queue in the status, and the condition Admitted. `held`: the reason why pods must not run."""
    observed, status = draft.observed, draft.status
    queue = find(observed)
    if queue is None:
        if status.placement is not None:
            status.placement.queue = None
        captured = _captured(observed)
        if captured is None:
            draft.drop(ConditionType.ADMITTED)
        else:
            draft.condition(ConditionType.ADMITTED, False, captured.reason, captured.message)
        return
    if not queue.workload:
        return
    placed = status.placement = status.placement or PlacementStatus()
    before = placed.queue if placed.queue is not None and placed.queue.name == queue.name else None
    state = _state(held)
    evicted = state is QueueState.EVICTED and (before is None or before.state is not state)
    found = queue.admission
    placed.queue = QueueStatus(
        name=queue.name,
        workload=queue.workload,
        state=state,
        cluster_queue=found.cluster_queue if found and held is None else "",
        evictions=(before.evictions if before else 0) + evicted,
    )
    shown = held or _captured(observed)
    if shown is not None:
        draft.condition(ConditionType.ADMITTED, False, shown.reason, shown.message)
    elif found is not None:
        reason, message = _admitted(observed.job, found)
        draft.condition(ConditionType.ADMITTED, True, reason, message)


def leave(draft: Draft) -> None:
    """Remove the queue from the status of a job that a user has suspended."""
    if draft.status.placement is not None:
        draft.status.placement.queue = None
    draft.drop(ConditionType.ADMITTED)


def chooses_places(observed: Observed) -> bool:
    """Return True if the job's queue chooses the places of its pods."""
    queue = find(observed)
    sets = queue.admission.pod_sets.values() if queue is not None and queue.admission is not None else ()
    return any(one.places is not None for one in sets)


def _state(held: Violation | None) -> QueueState:
    if held is None:
        return QueueState.ADMITTED
    if held.reason is Reasons.QUEUE_EVICTED:
        return QueueState.EVICTED
    return QueueState.INACTIVE if held.reason is Reasons.QUEUE_INACTIVE else QueueState.WAITING


def _captured(observed: Observed) -> Violation | None:
    """Return the problem of a pod that Kueue itself queues; None if there is none."""
    for one in own_pods(observed):
        if one.gated and one.labels.get(LABEL_CAPTURED) == "true":
            reason = Reasons.QUEUE_CAPTURED
            return Violation(reason, reason.format(pod=one.name, namespace=observed.job.metadata.namespace))
    return None


def _admitted(job: TrainingJob, found: Admission) -> tuple[Reason, str]:
    counts = {name: one.count for name, one in found.pod_sets.items()}
    fewer = [
        f"{role.name}: {counts[role.name]} of {role.replicas}"
        for role in job.spec.roles
        if counts.get(role.name, role.replicas) < role.replicas
    ]
    facts: dict[str, Any] = {"cluster_queue": found.cluster_queue, "count": sum(counts.values())}
    if not fewer:
        return Reasons.QUEUE_ADMITTED, Reasons.QUEUE_ADMITTED.format(**facts)
    wanted = sum(role.replicas for role in job.spec.roles)
    reason = Reasons.QUEUE_PARTIAL
    return reason, reason.format(**facts, wanted=wanted, roles=", ".join(fewer))


def role_count(role: Role, state: Admission | None) -> int:
    """Return the number of pods of a role that its queue lets run."""
    found = state.pod_sets.get(role.name) if state is not None else None
    if state is None or found is None:
        return 0
    return found.count - state.reclaimable.get(role.name, 0)
