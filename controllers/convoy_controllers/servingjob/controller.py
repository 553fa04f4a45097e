"""The controller of ServingJobs: its plans, and the changes that queue a job."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.children import Apply, Create, Delete
from convoy_controllers.controller import Controller, Makes, Validity, Watch, by_field, by_owner
from convoy_controllers.placement.gang_choice import GANG_RESOURCES
from convoy_controllers.reader import Reader
from convoy_controllers.resources import (
    CHECKPOINT_STORES,
    CONTROLLER_REVISIONS,
    ENDPOINT_SLICES,
    ENGINES,
    HORIZONTAL_POD_AUTOSCALERS,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    TRAINING_JOBS,
)
from convoy_controllers.servingjob import endpoints
from convoy_controllers.servingjob.observe import observe, waits_for
from convoy_controllers.servingjob.plan import plan
from convoy_controllers.views import ENDED_PHASES
from convoy_controllers.workers.refusal import Refusal, findings, refusal
from convoy_crds.servingjob import KIND, ServingJob
from convoy_crds.terms import LABEL_NODE_HEALTH, LABEL_ROLE, MANAGED_BY, ROLE_ACTIVATOR, ConditionType

PROGRESS_FIELDS = frozenset({"checkpoint", "traffic"})
"""Status fields that change all the time."""


def managed(job: Mapping[str, Any]) -> bool:
    """Return True if this operator manages the ServingJob. `spec.managedBy` may name another controller."""
    return (job.get("spec") or {}).get("managedBy") in (None, MANAGED_BY)


def explain(
    job: ServingJob, manifest: Mapping[str, Any], message: str, causes: tuple[Any, ...]
) -> Refusal | None:
    """Return the API server's refusal of a child. For a pod, it names the field of the job that is at fault.

    Return None if no field of the job is at fault: then an admission webhook or a policy refused the pod.
    """
    labels = manifest["metadata"].get("labels") or {}
    if manifest.get("kind") != PODS.kind or labels[LABEL_ROLE] == ROLE_ACTIVATOR:
        return Refusal(message)
    found = findings(job.spec.roles, manifest, labels[LABEL_ROLE], message, causes)
    return refusal(found) if found else None


def _saved(job: CachedObject) -> Hashable:
    """Return the part of a TrainingJob that matters to jobs that serve its checkpoints."""
    marks = (job.status.get("checkpoint") or {}).get("watermarks") or {}
    remote = marks.get("remote") or {}
    return job.uid, job.generation, remote.get("incarnation"), remote.get("step")


def _usable(store: CachedObject) -> Hashable:
    """Return the part of a CheckpointStore that matters to its jobs, without the time of the last probe."""
    return str(store.raw.get("spec")), str(store.status.get("conditions"))


def _job(reader: Reader, before: Pod | None, after: Pod | None) -> Iterable[tuple[str, str]]:
    pod: Any = after if after is not None else before
    return [(pod.namespace, pod.job)] if pod.kind == KIND.name else []


def _is_urgent(before: Pod | None, after: Pod | None) -> bool:
    """Return True if the change is the end of a pod, or a pod that became ready or unready."""
    if after is None or before is None:
        return after is None
    ended = after.view.phase in ENDED_PHASES and before.view.phase != after.view.phase
    return ended or before.view.ready != after.view.ready


def _relevant(node: Node) -> Hashable:
    """Return the part of a node that matters to the replicas on it."""
    return node.ready, node.cordoned, node.agent_ready, node.labels.get(LABEL_NODE_HEALTH)


def _jobs_of_node(reader: Reader, before: Node | None, after: Node | None) -> Iterable[tuple[str, str]]:
    node: Any = after if after is not None else before
    return reader.jobs_on(KIND, node.name)


CONTROLLER = Controller(
    KIND,
    summary="Creates, rolls, restarts and drains the replicas of a job, and reports whether they serve.",
    observe=observe,
    plan=plan,
    makes=(
        Makes(PODS, (Create, Delete)),
        Makes(PODS, (Apply,), subresource="status"),
        Makes(SERVICES, (Apply,)),
        Makes(POD_DISRUPTION_BUDGETS, (Apply,)),
        Makes(NETWORK_POLICIES, (Apply,)),
        Makes(CONTROLLER_REVISIONS, (Apply,)),
        Makes(HORIZONTAL_POD_AUTOSCALERS, (Apply,)),
        *(Makes(resource, (Apply,)) for resource in GANG_RESOURCES),
    ),
    watches=(
        by_field(KIND, ENGINES, "spec.roles[].engine.name"),
        by_field(KIND, TRAINING_JOBS, "spec.model.checkpoint.job", _saved),
        by_field(KIND, CHECKPOINT_STORES, "spec.model.checkpoint.store", _usable),
        by_owner(KIND, SERVICES),
        by_owner(KIND, POD_DISRUPTION_BUDGETS),
        by_owner(KIND, NETWORK_POLICIES),
        by_owner(KIND, CONTROLLER_REVISIONS),
        by_owner(KIND, HORIZONTAL_POD_AUTOSCALERS),
        *(by_owner(KIND, resource) for resource in GANG_RESOURCES),
        Watch(ENDPOINT_SLICES, endpoints.jobs_of, endpoints.relevant),
        Watch(PODS, _job, lambda pod: pod.view, _is_urgent),
        Watch(NODES, _jobs_of_node, _relevant),
    ),
    validity=Validity(ConditionType.VALID),
    manages=managed,
    waits_for=waits_for,
    progress=PROGRESS_FIELDS,
    explain=explain,
)
