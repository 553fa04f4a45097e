"""Resources of the API server, and their URL paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convoy_crds import (
    checkpointstore,
    engine,
    experiment,
    guardpolicy,
    hardwareclass,
    healthsweep,
    nodehealth,
    servingjob,
    spotpool,
    trainingjob,
)
from convoy_crds.kind import Kind


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type of the Kubernetes API, such as pods."""

    group: str
    """Name of the API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    optional: bool = False
    """True if a cluster may lack the resource. The operator then watches it only where it is served."""

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of the objects, such as `v1` or `convoy.dev/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection, object or subresource. If `namespace` is None, the
        collection spans all namespaces.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


def resource_of(kind: Kind[Any]) -> Resource:
    """Return the API resource that belongs to one of Convoy's kinds."""
    return Resource(kind.group, kind.version, kind.plural, kind.name, kind.namespaced)


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
GANG_GROUP = "scheduling.k8s.io"
"""API group of Kubernetes' own gangs."""
NATIVE_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Versions of Kubernetes' own gangs, the newest first: v1beta1 and v1alpha3 in 1.37, v1alpha2 in 1.36."""
NATIVE_POD_GROUPS = tuple(
    Resource(GANG_GROUP, version, "podgroups", "PodGroup", optional=True) for version in NATIVE_VERSIONS
)
NATIVE_WORKLOADS = tuple(
    Resource(GANG_GROUP, version, "workloads", "Workload", optional=True) for version in NATIVE_VERSIONS
)
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", optional=True)
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", optional=True)
KUEUE_GROUP, KUEUE_VERSION = "kueue.x-k8s.io", "v1beta2"
KUEUE_WORKLOADS = Resource(KUEUE_GROUP, KUEUE_VERSION, "workloads", "Workload", optional=True)
KUEUE_LOCAL_QUEUES = Resource(KUEUE_GROUP, KUEUE_VERSION, "localqueues", "LocalQueue", optional=True)
KUEUE_CLUSTER_QUEUES = Resource(
    KUEUE_GROUP, KUEUE_VERSION, "clusterqueues", "ClusterQueue", namespaced=False, optional=True
)
KUEUE_FLAVORS = Resource(
    KUEUE_GROUP, KUEUE_VERSION, "resourceflavors", "ResourceFlavor", namespaced=False, optional=True
)
KUEUE_TOPOLOGIES = Resource(
    KUEUE_GROUP, KUEUE_VERSION, "topologies", "Topology", namespaced=False, optional=True
)
KUEUE_PRIORITY_CLASSES = Resource(
    KUEUE_GROUP,
    KUEUE_VERSION,
    "workloadpriorityclasses",
    "WorkloadPriorityClass",
    namespaced=False,
    optional=True,
)
PRIORITY_CLASSES = Resource(GANG_GROUP, "v1", "priorityclasses", "PriorityClass", namespaced=False)
TRAINING_JOBS = resource_of(trainingjob.KIND)
SERVING_JOBS = resource_of(servingjob.KIND)
EXPERIMENTS = resource_of(experiment.KIND)
ENGINES = resource_of(engine.KIND)
CHECKPOINT_STORES = resource_of(checkpointstore.KIND)
GUARD_POLICIES = resource_of(guardpolicy.KIND)
NODE_HEALTHS = resource_of(nodehealth.KIND)
HEALTH_SWEEPS = resource_of(healthsweep.KIND)
HARDWARE_CLASSES = resource_of(hardwareclass.KIND)
SPOT_POOLS = resource_of(spotpool.KIND)
