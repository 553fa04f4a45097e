"""The resources of the API server that the operator speaks of, and where they are."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.meta import GROUP, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects carry it: `v1`, `convoy.dev/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of a collection, object or subresource; all namespaces when `namespace` is None."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
TRAINING_JOBS = Resource(GROUP, VERSION, "trainingjobs", "TrainingJob")
ENGINES = Resource(GROUP, VERSION, "engines", "Engine", namespaced=False)
CHECKPOINT_STORES = Resource(GROUP, VERSION, "checkpointstores", "CheckpointStore", namespaced=False)
GUARD_POLICIES = Resource(GROUP, VERSION, "guardpolicies", "GuardPolicy", namespaced=False)
NODE_HEALTHS = Resource(GROUP, VERSION, "nodehealths", "NodeHealth", namespaced=False)
HEALTH_SWEEPS = Resource(GROUP, VERSION, "healthsweeps", "HealthSweep", namespaced=False)
HARDWARE_CLASSES = Resource(GROUP, VERSION, "hardwareclasses", "HardwareClass", namespaced=False)

PARENTS = {resource.kind: resource for resource in (TRAINING_JOBS, ENGINES, CHECKPOINT_STORES)}
"""The kinds that are reconciled."""
