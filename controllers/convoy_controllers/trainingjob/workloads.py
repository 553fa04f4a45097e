"""The changes of a job's Kueue Workloads: what a plan applies, patches and deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Child, Delete, PatchStatus, owner_reference
from convoy_controllers.placement.kueue import status as workload_status
from convoy_controllers.placement.kueue.admission import Admission, Stage, admission, holds
from convoy_controllers.placement.kueue.names import ANNOTATION_WORKLOAD, EVICTED
from convoy_controllers.placement.kueue.workload import manifest, wishes, workload_name
from convoy_controllers.resources import KUEUE_WORKLOADS
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.queueing import Queue, find, own_pods, pod_sets
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

PATCH_SECONDS = 5.0
"""Seconds after which a patch of a Workload's status is tried again, if it has failed."""


def children(observed: Observed, now: datetime, status: Mapping[str, Any] | None = None) -> list[Child]:
    """Return the changes of the job's Workloads while the job should run. `status`: the status of the job
    that this plan stores; None if it does not change.
    """
    own, queue = own_pods(observed), find(observed)
    wanted = queue.workload if queue else ""
    found: list[Child] = [] if own else _deleted(observed, except_for=wanted)
    if queue is None or not wanted or KUEUE_WORKLOADS not in observed.served:
        return found
    if all(one.annotations.get(ANNOTATION_WORKLOAD, "") == wanted for one in own):
        found += _applied(observed, queue)
    if queue.stored is not None:
        found += _patched(queue.stored, _fresh(observed, queue.stored, now, status))
    return found


def released(observed: Observed) -> list[Child]:
    """Return the deletions of all Workloads of a job that must not run, once it has no pods."""
    return [] if own_pods(observed) else _deleted(observed)


def finished(observed: Observed, now: datetime) -> list[Child]:
    """Return the changes of the Workloads of a job that has ended. After its last pod it needs no quota."""
    if any(one.phase not in ENDED_PHASES for one in own_pods(observed)):
        return []
    status = observed.job.status
    found: list[Child] = []
    for one in observed.queue.workloads:
        succeeded = status.phase is Phase.SUCCEEDED
        message = status.message or f"the job has ended: {status.phase}"
        found += _patched(one, workload_status.finished(one.raw, succeeded, message, now))
    return found


def _deleted(observed: Observed, except_for: str = "") -> list[Child]:
    return [
        Delete(KUEUE_WORKLOADS, one.name, one.uid)
        for one in observed.queue.workloads
        if one.name != except_for
    ]


def _applied(observed: Observed, queue: Queue) -> list[Child]:
    """Return the Workload to apply. A Workload that a started job keeps may differ from what this release of
    the operator would write. It is then left as it is.
    """
    job = observed.job
    sets = pod_sets(observed)
    known = workload_name(job.metadata.name, job.metadata.uid, queue.name, sets) == queue.workload
    wanted = wishes(job.metadata.labels, job.metadata.annotations)
    if not known or observed.queue.priority.unknown or wanted.wrong:
        return []
    if queue.admission is not None and queue.admission.reserved and queue.stored is not None:
        # Kueue forbids another time while quota is reserved.
        kept = (queue.stored.raw.get("spec") or {}).get("maximumExecutionTimeSeconds")
        wanted = replace(wanted, max_seconds=int(kept or 0))
    owner = owner_reference(KIND.api_version, KIND.name, job.metadata.name, job.metadata.uid)
    body = manifest(queue.workload, queue.name, sets, observed.queue.priority, owner, wanted)
    admitted = queue.admission is not None and queue.admission.stage is Stage.ADMITTED
    return [Apply(KUEUE_WORKLOADS, body, required=not admitted)]


def _patched(stored: CachedObject, status: Mapping[str, Any]) -> list[Child]:
    if status == stored.status:
        return []
    return [PatchStatus(KUEUE_WORKLOADS, stored.name, status, str(stored.version))]


def _fresh(
    observed: Observed, stored: CachedObject, now: datetime, job_status: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the status that the job's Workload should have."""
    raw, state = stored.raw, admission(stored.raw)
    if state.stage is Stage.FINISHED or not state.reserved:
        return stored.status
    if state.stage is Stage.EVICTED and not own_pods(observed):
        # Kueue itself evicts a deactivated Workload. The reservation is cleared after that.
        return workload_status.cleared(raw, now) if holds(raw, EVICTED) else stored.status
    status = workload_status.with_ready(raw, _ready(observed, state), now)
    if state.stage is not Stage.ADMITTED:
        return status
    return workload_status.with_reclaimable({**raw, "status": status}, _reclaimable(observed.job, job_status))


def _ready(observed: Observed, state: Admission) -> bool:
    """Return True if all admitted pods are ready or have succeeded."""
    up = [one for one in own_pods(observed) if one.phase == "Succeeded" or (one.ready and not one.deleting)]
    counts = Counter(_role_of(one, observed.job) for one in up)
    return bool(state.pod_sets) and all(
        counts[name] >= one.count - state.reclaimable.get(name, 0) for name, one in state.pod_sets.items()
    )


def _role_of(one: PodView, job: TrainingJob) -> str:
    name = one.name.removeprefix(f"{job.metadata.name}-").rpartition("-")[0]
    return name


def _reclaimable(job: TrainingJob, status: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the pods of each role that will never run again: the Independent pods that have completed or
    were given up. A restart of the group needs all its pods, also those that have completed.
    """
    independent = {role.name for role in job.spec.roles if role.independent}
    if not independent:
        return {}
    fresh = job.status if status is None else TrainingJobStatus.model_validate(status)
    return {
        one.name: one.independent.completed + one.independent.given_up
        for one in fresh.roles
        if one.name in independent and one.independent is not None
    }
