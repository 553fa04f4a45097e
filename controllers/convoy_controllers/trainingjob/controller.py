"""The controller of TrainingJobs: its plans, and the changes that queue a job."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.children import Apply, Check, Create, Delete, EndPod, PatchStatus
from convoy_controllers.controller import Controller, Makes, Validity, Watch, by_field, by_owner
from convoy_controllers.placement.gang_choice import GANG_RESOURCES
from convoy_controllers.placement.kueue.names import LABEL_QUEUE
from convoy_controllers.placement.kueue.objects import QUEUE_SETTINGS
from convoy_controllers.progress_throttle import PROGRESS_FIELDS
from convoy_controllers.reader import Reader
from convoy_controllers.resources import (
    CHECKPOINT_STORES,
    ENGINES,
    KUEUE_WORKLOADS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SPOT_POOLS,
    TRAINING_JOBS,
)
from convoy_controllers.spotpool.members import POOL_FIELD
from convoy_controllers.trainingjob.claiming import claims_of
from convoy_controllers.trainingjob.observe import observe, waits_for
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import ENDED_PHASES
from convoy_controllers.workers.refusal import Refusal, findings, refusal
from convoy_crds.terms import LABEL_ROLE, MANAGED_BY, ConditionType
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

STORE_FIELD = "spec.checkpoint.tiers.remote.store"
"""Path of the field with the name of a job's CheckpointStore."""
TRACE_STORE_FIELD = "spec.trace.store"
"""Path of the field with the name of the CheckpointStore for a job's traces."""


def managed(job: Mapping[str, Any]) -> bool:
    """Return True if this operator manages the TrainingJob. `spec.managedBy` may name another controller."""
    return (job.get("spec") or {}).get("managedBy") in (None, MANAGED_BY)


def ended(job: CachedObject) -> bool:
    """Return True if the job's phase is terminal."""
    return job.status.get("phase") in TERMINAL


def explain(
    job: TrainingJob, pod: Mapping[str, Any], message: str, causes: tuple[Any, ...]
) -> Refusal | None:
    """Return the API server's refusal of a pod, with the field of the job that is at fault.

    Return None if no field of the job is at fault: then an admission webhook or a policy refused the pod.
    """
    found = findings(job.spec.roles, pod, pod["metadata"]["labels"][LABEL_ROLE], message, causes)
    return refusal(found) if found else None


def _resumable(job: CachedObject) -> Hashable:
    """Return the part of a job that matters to jobs that resume from it."""
    marks = (job.status.get("checkpoint") or {}).get("watermarks") or {}
    return job.uid, job.generation, marks.get("remote") is not None


def _unformed(job: CachedObject) -> bool:
    return not job.status.get("incarnation")


def _usable(store: CachedObject) -> Hashable:
    """Return the part of a CheckpointStore that matters to its jobs, without the time of the last probe."""
    return str(store.raw.get("spec")), str(store.status.get("conditions"))


def _granting(pool: CachedObject) -> Hashable:
    """Return the part of a SpotPool that matters to its jobs."""
    return pool.generation, str(pool.status.get("grants"))


def _job(reader: Reader, before: Pod | None, after: Pod | None) -> Iterable[tuple[str, str]]:
    pod: Any = after if after is not None else before
    return [(pod.namespace, pod.job)] if pod.kind == KIND.name else []


def _is_pod_end(before: Pod | None, after: Pod | None) -> bool:
    """Return True if the change is the end of a pod. It is urgent, because it makes all other ranks wait.
    All other changes come in bursts, so they can wait for the debounce.
    """
    return after is None or (
        after.view.phase in ENDED_PHASES and (before is None or before.view.phase != after.view.phase)
    )


def _job_relevant(node: Node) -> Hashable:
    """Return the part of a node that matters to the jobs on it."""
    return node.ready, node.cordoned, node.agent_ready


def _jobs_of_node(reader: Reader, before: Node | None, after: Node | None) -> Iterable[tuple[str, str]]:
    """Return the jobs on a node. If the cluster got its first agent or lost its last one, return all jobs."""
    node: Any = after if after is not None else before
    had, has = before is not None and before.agent_ready, after is not None and after.agent_ready
    if had != has and len(reader.agent_nodes) == int(has):
        return [(one.namespace, one.name) for one in reader.live(KIND)]
    return reader.jobs_on(KIND, node.name)


def _claimed(
    reader: Reader, before: CachedObject | None, after: CachedObject | None
) -> Iterable[tuple[str, str]]:
    """Return the jobs whose pods a job claims, or has claimed until this change."""
    return {
        (claim["namespace"], claim["job"])
        for one in (before, after)
        if one is not None
        for claim in claims_of(one)
    }


def _queued(reader: Reader, before: Any | None, after: Any | None) -> Iterable[tuple[str, str]]:
    """Return the jobs that have a queue."""
    return [
        (one.namespace, one.name)
        for one in reader.live(KIND)
        if LABEL_QUEUE in (one.raw["metadata"].get("labels") or {})
    ]


def _settings(found: CachedObject) -> Hashable:
    """Return the part of a setting of the cluster that matters to queued jobs, without its status."""
    return found.uid, str(found.raw.get("spec")), found.raw.get("value"), found.raw.get("globalDefault")


CONTROLLER = Controller(
    KIND,
    summary="Creates and replaces the pods of a job, forms and restarts its group, and reports its progress.",
    observe=observe,
    plan=plan,
    makes=(
        Makes(PODS, (Check, Create, Delete, EndPod)),
        Makes(NETWORK_POLICIES, (Apply,)),
        *(Makes(resource, (Apply,)) for resource in GANG_RESOURCES),
        Makes(KUEUE_WORKLOADS, (Apply, Delete, PatchStatus)),
    ),
    watches=(
        by_field(KIND, TRAINING_JOBS, "spec.checkpoint.resumeFrom.job", _resumable, _unformed),
        by_field(KIND, ENGINES, "spec.engine.name"),
        by_field(KIND, CHECKPOINT_STORES, STORE_FIELD, _usable),
        by_field(KIND, CHECKPOINT_STORES, TRACE_STORE_FIELD, _usable),
        by_field(KIND, SPOT_POOLS, POOL_FIELD, _granting),
        by_owner(KIND, NETWORK_POLICIES),
        *(by_owner(KIND, resource) for resource in GANG_RESOURCES),
        by_owner(KIND, KUEUE_WORKLOADS),
        *(Watch(resource, _queued, _settings, whole=True) for resource in QUEUE_SETTINGS),
        Watch(TRAINING_JOBS, _claimed, claims_of),
        Watch(PODS, _job, lambda pod: pod.view, _is_pod_end),
        Watch(NODES, _jobs_of_node, _job_relevant),
    ),
    validity=Validity(ConditionType.VALID, Phase.PENDING.value),
    manages=managed,
    waits_for=waits_for,
    progress=PROGRESS_FIELDS,
    over=ended,
    deletes=True,
    explain=explain,
)
