"""The objects beside the pods of a ServingJob: Service, NetworkPolicies, PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.resources import (
    CONTROLLER_REVISIONS,
    HORIZONTAL_POD_AUTOSCALERS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    Resource,
)
from convoy_controllers.servingjob import pods
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.pods import labels
from convoy_controllers.servingjob.revision import RevisionSpec, successor
from convoy_controllers.servingjob.rollout import Unit
from convoy_controllers.workers import network
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import KIND, ServingJob
from convoy_crds.servingjob_rollout import ServiceType
from convoy_crds.servingjob_scaling import Scaling, ScalingMode
from convoy_crds.terms import LABEL_ENDPOINT, LABEL_JOB, LABEL_KIND, LABEL_REVISION, ROLE_ACTIVATOR

PORT_NAME = "http"
PRUNED = (
    SERVICES,
    POD_DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    CONTROLLER_REVISIONS,
    HORIZONTAL_POD_AUTOSCALERS,
)
"""Resources whose objects the job owns completely."""


def applied(
    observed: Observed, spec: RevisionSpec, units: Mapping[str, Sequence[Unit]], front: str, *, held: bool
) -> Iterator[Apply]:
    """Yield the objects beside the pods. `spec` is the revision to which the replicas roll, and `front` the
    value of the endpoint label in the pods to which the Service leads.
    """
    job = observed.job
    yield from reached(observed, front)
    for role in spec.roles:
        there = units.get(role.name, ())
        desired = observed.desired(successor(job, spec, role.name))
        most = min_available_pods(desired, role.group_size, there, held=held)
        if most is not None:
            yield disruption_budget(job, role.name, most)
    for own in job.spec.roles:
        if own.scaling is not None and own.scaling.mode is ScalingMode.HORIZONTAL_POD_AUTOSCALER:
            yield horizontal_pod_autoscaler(job, own.name, own.scaling)


def refused(observed: Observed) -> Violation | None:
    """Return the API server's refusal of an object beside the pods; None if there is none."""
    job = observed.job.metadata.name
    roles = (*(role.name for role in observed.job.spec.roles), ROLE_ACTIVATOR)
    names = (job, *network.names(KIND.name, job), *(f"{job}-{role}" for role in roles))
    for name in (*names, *(f"{job}-{one.name}" for one in observed.revisions)):
        if found := observed.create_errors.get(name):
            return Violation(Reasons.POD_REJECTED, f"the API server refused object {name}: {found.message}")
    return None


def reached(observed: Observed, front: str = pods.REPLICAS) -> Iterator[Apply]:
    """Yield the Service, and the NetworkPolicies that limit who reaches the pods."""
    job = observed.job
    wanted = job.spec.service
    used = {pod.labels.get(LABEL_REVISION) for pod in observed.own_pods}
    live = [one.spec for one in observed.revisions if one.name in used]
    ports = {wanted.port, *(one.port for one in live)}
    outside = wanted.type is not ServiceType.CLUSTER_IP
    reachable = {
        "matchLabels": {LABEL_JOB: job.metadata.name, LABEL_KIND: KIND.name},
        "matchExpressions": [{"key": LABEL_ENDPOINT, "operator": "Exists"}],
    }
    served = network.ServedPorts(sorted(ports), reachable, outside)
    read = {role.metrics.port or wanted.port for role in job.spec.roles if role.metrics}
    read |= {role.metrics_port for one in live for role in one.roles if role.metrics_port}
    yield service(job, front)
    yield from network.policies(observed.network, KIND, job.metadata, served=served, metrics_ports=read)


def service(job: ServingJob, front: str) -> Apply:
    """Return the Service. It sends requests to slot 0 of each replica of the serving role, or to the
    activators. During a rollout that changes the role or the port, it sends them to pods of both revisions.
    """
    wanted = job.spec.service
    port = {"name": PORT_NAME, "port": wanted.port, "targetPort": pods.PORT_NAME, "protocol": "TCP"}
    spec = {"type": str(wanted.type), "selector": pods.endpoints(job.metadata.name, front), "ports": [port]}
    return _owned(job, SERVICES, job.metadata.name, spec)


def min_available_pods(desired: int, group_size: int, units: Sequence[Unit], *, held: bool) -> int | None:
    """Return the smallest number of ready pods that an eviction must leave; None for no limit.

    With two or more replicas, one pod at a time may be evicted. A single replica is protected, because
    Convoy replaces it by a surge as soon as its node is drained. If the surge cannot start, the limit is 0
    on a node that an administrator drains, so that no drain blocks.
    """
    if desired == 0:
        return None
    if desired > 1:
        return desired * group_size - 1
    moving = any(one.moving and one.drained for one in units)
    blocked = held or any((one.unplaced or one.failed) and not one.moving for one in units)
    return 0 if moving and blocked else group_size


def disruption_budget(job: ServingJob, role: str, min_available: int) -> Apply:
    """Return the PodDisruptionBudget of a role. Pods that are not ready may always be evicted."""
    spec = {
        "minAvailable": min_available,
        "selector": {"matchLabels": labels(job.metadata.name, role)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _owned(job, POD_DISRUPTION_BUDGETS, f"{job.metadata.name}-{role}", spec)


def horizontal_pod_autoscaler(job: ServingJob, role: str, scaling: Scaling) -> Apply:
    """Return the HorizontalPodAutoscaler of the scaled role."""
    given = scaling.to_dict()
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": KIND.api_version, "kind": KIND.name, "name": job.metadata.name},
        **{key: given[key] for key in ("minReplicas", "maxReplicas", "behavior") if key in given},
    }
    if given["metrics"]:
        spec["metrics"] = given["metrics"]
    return _owned(job, HORIZONTAL_POD_AUTOSCALERS, f"{job.metadata.name}-{role}", spec)


def _owned(job: ServingJob, resource: Resource, name: str, spec: Mapping[str, Any]) -> Apply:
    metadata = job.metadata
    own = {LABEL_JOB: metadata.name, LABEL_KIND: KIND.name}
    owner = owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid)
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": own, "ownerReferences": [owner]},
        "spec": spec,
    }
    # Replicas can serve without these objects, so the API server's refusal does not keep them from starting.
    return Apply(resource, body, required=False)
