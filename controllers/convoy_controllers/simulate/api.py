"""The API server of a simulated cluster. It stores jobs, pods and nodes, and notifies listeners of changes.

It has only the features on which decisions about jobs depend: uids, versions and conflicts, graceful
deletion, creation times in whole seconds, refused requests, and outages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from convoy_controllers.merge_patch import merged
from convoy_controllers.placement.requests import pod_requests
from convoy_controllers.resources import POD_DISRUPTION_BUDGETS, SERVICES, Resource
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds import containers
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob

J = TypeVar("J", TrainingJob, ServingJob)
GRACE_SECONDS = 30.0
"""Termination grace period in seconds of a pod whose template sets none."""


class ApiError(Exception):
    """Raised when a request fails."""


class Unavailable(ApiError):
    """Raised when the API server does not answer. The caller may retry."""


class Conflict(ApiError):
    """Raised when a request names another uid or resource version than the stored object has."""


class AlreadyExists(ApiError):
    """Raised when an object with the name already exists."""


class Refused(ApiError):
    """Raised when admission refuses the object. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[J]):
    """A job as the API server stores it, with its resource version."""

    job: J
    version: int


@dataclass(frozen=True, slots=True)
class Node:
    """A Node of the simulated API server."""

    name: str
    capacity: int
    """Maximum number of pods of jobs that the node has at the same time."""
    ready: bool = True
    cordoned: bool = False
    agent_ready: bool = False
    """True if the node has the agent-ready label."""
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    """Thousandths of each resource's unit that pods may request, by name of the resource."""


Listener = Callable[[str, str], None]
"""Function that is called with the kind and the name of a changed object. The kind is `jobs`, `pods`, `nodes`
or the plural of an applied object's resource; behind the plural stands `/status` if the status has changed.
"""


class Api:
    """The API server. Its methods return at once: the caller itself must wait for the latency of each
    request.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._count = 0
        self.up = True
        self.lists_endpoints = True
        """False while the endpoint slice controller of Kubernetes is away."""
        self.jobs: dict[str, Stored[Any]] = {}
        """The jobs of all kinds, by name."""
        self.pods: dict[str, PodView] = {}
        self.versions: dict[str, int] = {}
        """Resource version of each pod, by uid."""
        self.nodes: dict[str, Node] = {}
        self.objects: dict[tuple[Resource, str], Mapping[str, Any]] = {}
        """The objects that the operator applied for jobs, by resource and name."""
        self.object_statuses: dict[tuple[Resource, str], Mapping[str, Any]] = {}
        """The statuses of these objects. A missing one is empty."""
        self.priorities: dict[str, int] = {}
        """Priority of each PriorityClass."""
        self.specs: dict[str, Mapping[str, Any]] = {}
        """Spec with which each pod was created, by uid."""
        self.refuse: Callable[[str], str] = lambda pod: ""
        """Function that returns why admission refuses a pod with this name; empty if it accepts the pod."""
        self.listeners: list[Listener] = []
        self.status_writes = 0

    def check(self) -> None:
        """Raise Unavailable during an outage."""
        if not self.up:
            raise Unavailable("the API server does not answer")

    def _notify(self, kind: str, name: str) -> None:
        """Notify all listeners of a change."""
        for listener in self.listeners:
            listener(kind, name)

    def list_endpoints(self) -> None:
        """Start the endpoint slice controller again."""
        self.lists_endpoints = True
        for resource, name in list(self.objects):
            if resource == SERVICES:
                self._notify(resource.plural, name)

    # Jobs

    def create_job(self, job: J) -> J:
        """Store a user's job with a uid, a metadata generation and a creation time. Raises AlreadyExists if
        the name is taken.
        """
        if job.metadata.name in self.jobs:
            raise AlreadyExists(job.metadata.name)
        meta = job.metadata.model_copy(
            update={
                "uid": job.metadata.uid or f"uid-{self._version()}",
                "generation": 1,
                "namespace": job.metadata.namespace or "default",
                "creation_timestamp": job.metadata.creation_timestamp
                or self._kernel.time.replace(microsecond=0),
            }
        )
        created = job.model_copy(update={"metadata": meta})
        self.jobs[meta.name] = Stored(created, self._version())
        self._notify("jobs", meta.name)
        return created

    def edit_job(self, name: str, spec: Mapping[str, Any]) -> None:
        """Replace fields of a job's spec as a user does. `spec` has the form of JSON.

        Raises pydantic's ValidationError.
        """
        self._replace_spec(name, {**self.jobs[name].job.to_dict()["spec"], **spec})

    def patch_job(self, name: str, patch: Mapping[str, Any]) -> None:
        """Apply a JSON merge patch to a job's spec as a user does. Raises pydantic's ValidationError."""
        self._replace_spec(name, merged(self.jobs[name].job.to_dict()["spec"], patch))

    def _replace_spec(self, name: str, spec: Mapping[str, Any]) -> None:
        stored = self.jobs[name]
        body = {**stored.job.to_dict(), "spec": spec}
        body["metadata"]["generation"] += 1
        self.jobs[name] = Stored(type(stored.job).model_validate(body), self._version())
        self._notify("jobs", name)

    def store_status(self, name: str, version: int, status: Mapping[str, Any]) -> Stored[Any]:
        """Replace a job's whole status. Raises Conflict if the job was deleted or changed since `version`."""
        self.check()
        stored = self.jobs.get(name)
        if stored is None or stored.version != version:
            raise Conflict(name)
        fresh = stored.job.model_copy(update={"status": type(stored.job.status).model_validate(status)})
        self.jobs[name] = Stored(fresh, self._version())
        self.status_writes += 1
        self._notify("jobs", name)
        return self.jobs[name]

    def delete_job(self, name: str) -> None:
        """Delete a job, with the objects that were applied for it. The garbage collector deletes the job's
        pods later.
        """
        self.check()
        stored = self.jobs.pop(name, None)
        if stored is not None:
            for resource, one in self.applied_for(stored.job.metadata.uid):
                self.remove_object(resource, one)
            self._notify("jobs", name)

    # Applied objects

    def apply(self, resource: Resource, body: Mapping[str, Any]) -> None:
        """Store an object that the operator applies for a job."""
        self.check()
        key = resource, body["metadata"]["name"]
        changed = self.objects.get(key) != body
        self.objects[key] = body
        if changed:
            self._notify(resource.plural, body["metadata"]["name"])

    def remove_object(self, resource: Resource, name: str) -> None:
        """Remove an applied object."""
        self.objects.pop((resource, name), None)
        self.object_statuses.pop((resource, name), None)

    def set_object_status(self, resource: Resource, name: str, status: Mapping[str, Any]) -> None:
        """Set the status of an applied object, as its controller does."""
        key = resource, name
        if key in self.objects and self.object_statuses.get(key) != status:
            self.object_statuses[key] = status
            self._notify(f"{resource.plural}/status", name)

    def applied_for(self, owner_uid: str) -> list[tuple[Resource, str]]:
        """Return resource and name of each object that was applied for an owner."""
        return [key for key, body in self.objects.items() if _owner_uid(body) == owner_uid]

    # Pods

    def create_pod(self, body: Mapping[str, Any]) -> PodView:
        """Store a new pod. Raises AlreadyExists if the name is taken, or Refused if admission refuses the
        pod.
        """
        self.check()
        meta, spec = body["metadata"], body["spec"]
        name = meta["name"]
        if name in self.pods:
            raise AlreadyExists(name)
        if why := self.refuse(name):
            raise Refused(why)
        self._count += 1
        ranks = containers.rank_container(meta["annotations"], [one["name"] for one in spec["containers"]])
        self.specs[f"pod-{self._count}"] = spec
        fresh = PodView(
            name=name,
            uid=f"pod-{self._count}",
            phase="Pending",
            labels=dict(meta["labels"]),
            annotations=dict(meta["annotations"]),
            created=float(int(self._kernel.now)),
            owner_uid=meta["ownerReferences"][0]["uid"],
            container=ranks,
            image=next(one.get("image", "") for one in spec["containers"] if one["name"] == ranks),
            scheduler=spec.get("schedulerName", ""),
            requests=pod_requests(spec),
            priority=self.priorities.get(spec.get("priorityClassName", ""), 0),
        )
        self._put(fresh)
        return fresh

    def delete_pod(self, name: str, uid: str, grace: float | None = None) -> PodView | None:
        """Start a pod's deletion. Return the pod in deletion, or None if the pod is already removed.

        A pod is removed at once if no process must end first: it has no node, it has ended, or `grace` is
        0. Raises Conflict if the pod has another uid.
        """
        self.check()
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            raise Conflict(name)
        if pod.node is None or pod.phase in ENDED_PHASES or grace == 0:
            self.remove_pod(name, uid)
            return None
        if not pod.deleting:
            now = self._kernel.now
            own = self.specs.get(uid, {}).get("terminationGracePeriodSeconds", GRACE_SECONDS)
            by = now + (own if grace is None else grace)
            self._put(replace(pod, deleting=True, leaving_since=now, leaves_by=by))
        return self.pods[name]

    def remove_pod(self, name: str, uid: str) -> None:
        """Remove a pod if it still has this uid."""
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            del self.pods[name]
            self.specs.pop(uid, None)
            self.versions.pop(uid, None)
            self._notify("pods", name)

    def set_pod(self, name: str, uid: str, **facts: Any) -> None:
        """Change fields of a pod, as a kubelet, the scheduler or a controller does. Do nothing if the pod
        is removed.
        """
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        fresh = replace(pod, **facts)
        if fresh != pod:
            self._put(fresh)

    def _put(self, pod: PodView) -> None:
        self.pods[pod.name] = pod
        self.versions[pod.uid] = self._version()
        self._notify("pods", pod.name)

    def evict(self, name: str) -> bool:
        """Evict a pod as `kubectl drain` does. Return False if a PodDisruptionBudget forbids it now."""
        pod = self.pods.get(name)
        if pod is not None and not pod.deleting and not all(self._may_evict(pod)):
            return False
        self.disrupt(name, "EvictionByEvictionAPI")
        return True

    def _may_evict(self, pod: PodView) -> Iterator[bool]:
        """Yield for each PodDisruptionBudget of a pod whether it allows an eviction. A pod that is not ready
        may always be evicted, as Convoy's budgets demand.
        """
        for (resource, _), body in self.objects.items():
            wanted = body["spec"]["selector"]["matchLabels"] if resource == POD_DISRUPTION_BUDGETS else None
            if pod.ready and wanted is not None and _matches(pod, wanted):
                healthy = [one for one in self.pods.values() if one.ready and not one.deleting]
                yield sum(_matches(one, wanted) for one in healthy) > body["spec"]["minAvailable"]

    def disrupt(self, name: str, reason: str) -> None:
        """Start the deletion of a pod and set `reason` in its DisruptionTarget condition."""
        if (pod := self.pods.get(name)) is not None and not pod.deleting:
            self.set_pod(name, pod.uid, disruption=reason)
            self.delete_pod(name, pod.uid)

    def pods_of(self, job: str) -> tuple[PodView, ...]:
        """Return the pods whose job label has the value `job`."""
        return tuple(pod for pod in self.pods.values() if pod.labels.get(LABEL_JOB) == job)

    def pods_on(self, node: str) -> list[PodView]:
        """Return the pods bound to a node."""
        return [pod for pod in self.pods.values() if pod.node == node]

    # Nodes

    def set_node(self, name: str, **facts: Any) -> None:
        """Change fields of a Node object. Do nothing if it does not exist."""
        node = self.nodes.get(name)
        if node is not None and (fresh := replace(node, **facts)) != node:
            self.nodes[name] = fresh
            self._notify("nodes", name)

    def put_node(self, node: Node) -> None:
        """Create a Node object, as the node's kubelet does."""
        self.nodes[node.name] = node
        self._notify("nodes", node.name)

    def delete_node(self, name: str) -> None:
        """Delete a Node object."""
        if self.nodes.pop(name, None) is not None:
            self._notify("nodes", name)

    def _version(self) -> int:
        self._count += 1
        return self._count


def _owner_uid(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["ownerReferences"][0]["uid"])


def _matches(pod: PodView, labels: Mapping[str, str]) -> bool:
    return all(pod.labels.get(key) == value for key, value in labels.items())
