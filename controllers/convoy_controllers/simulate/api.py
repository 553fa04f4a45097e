"""The API server of a simulated cluster: jobs, pods and nodes as they are stored, and change listeners.

Only what decisions about jobs can depend on is modelled: uids, versions and conflicts, graceful deletion,
creation times in whole seconds, requests that are refused, and times at which nothing answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds import containers
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TrainingJobStatus

GRACE_SECONDS = 30.0
"""Of a pod whose template says nothing."""


class ApiError(Exception):
    """A request that was not carried out."""


class Unavailable(ApiError):
    """Nobody answers; it may be tried again."""


class Conflict(ApiError):
    """The object is not the one, or not in the version, that was meant."""


class AlreadyExists(ApiError):
    """The name is taken."""


class Refused(ApiError):
    """Admission will not have the object; the message says why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A job and its version."""

    job: TrainingJob
    version: int


@dataclass(frozen=True, slots=True)
class Node:
    """A Node object."""

    name: str
    capacity: int
    """Pods of jobs that fit."""
    ready: bool = True
    cordoned: bool = False
    agent_ready: bool = False
    """Whether it carries the agent-ready label."""
    labels: Mapping[str, str] = field(default_factory=dict)


Listener = Callable[[str, str], None]
"""(`jobs`, `pods` or `nodes`; name) of something that has changed."""


class Api:
    """Requests take no time here; whoever makes them takes it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._count = 0
        self.up = True
        self.jobs: dict[str, Stored] = {}
        self.pods: dict[str, PodView] = {}
        self.versions: dict[str, int] = {}
        """By pod uid, the version of what is stored."""
        self.nodes: dict[str, Node] = {}
        self.specs: dict[str, Mapping[str, Any]] = {}
        """By pod uid, the spec it was created with."""
        self.refuse: Callable[[str], str] = lambda pod: ""
        """Why a pod of this name may not be created; empty when it may."""
        self.listeners: list[Listener] = []
        self.status_writes = 0

    def check(self) -> None:
        """Unavailable while nobody answers."""
        if not self.up:
            raise Unavailable("the API server does not answer")

    def _notify(self, kind: str, name: str) -> None:
        """Tells everybody of a change."""
        for listener in self.listeners:
            listener(kind, name)

    # Jobs

    def create_job(self, job: TrainingJob) -> TrainingJob:
        """Takes a user's job and gives it uid, generation and creation time. AlreadyExists."""
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
        self.jobs[meta.name] = Stored(job.model_copy(update={"metadata": meta}), self._version())
        self._notify("jobs", meta.name)
        return self.jobs[meta.name].job

    def edit_job(self, name: str, spec: Mapping[str, Any]) -> None:
        """Changes fields of the spec, in JSON form, as a user does; ValidationError as the schema."""
        stored = self.jobs[name]
        body = stored.job.to_dict()
        body["spec"].update(spec)
        body["metadata"]["generation"] += 1
        self.jobs[name] = Stored(TrainingJob.model_validate(body), self._version())
        self._notify("jobs", name)

    def store_status(self, name: str, version: int, status: Mapping[str, Any]) -> Stored:
        """Writes the whole status if the job has not changed since. Conflict where it has, or is gone."""
        self.check()
        stored = self.jobs.get(name)
        if stored is None or stored.version != version:
            raise Conflict(name)
        fresh = stored.job.model_copy(update={"status": TrainingJobStatus.model_validate(status)})
        self.jobs[name] = Stored(fresh, self._version())
        self.status_writes += 1
        self._notify("jobs", name)
        return self.jobs[name]

    def delete_job(self, name: str) -> None:
        """Deletes a job; the garbage collector sees to its pods."""
        self.check()
        if self.jobs.pop(name, None) is not None:
            self._notify("jobs", name)

    # Pods

    def create_pod(self, body: Mapping[str, Any]) -> PodView:
        """Takes a pod. AlreadyExists, Refused."""
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
        )
        self._put(fresh)
        return fresh

    def delete_pod(self, name: str, uid: str, grace: float | None = None) -> PodView | None:
        """Begins a pod's deletion; the pod as it is then, None when it is gone. Conflict for another's uid.

        It is gone at once where nobody has to end it: without a node, after its end, or with a grace of 0.
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
        """The object is gone; without effect on another of its name."""
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            del self.pods[name]
            self.specs.pop(uid, None)
            self.versions.pop(uid, None)
            self._notify("pods", name)

    def set_pod(self, name: str, uid: str, **facts: Any) -> None:
        """Changes what a kubelet, the scheduler or a controller says of a pod that is still there."""
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

    def evict(self, name: str, reason: str = "EvictionByEvictionAPI") -> None:
        """Deletes a pod and says, in its DisruptionTarget condition, for whom."""
        if (pod := self.pods.get(name)) is not None and not pod.deleting:
            self.set_pod(name, pod.uid, disruption=reason)
            self.delete_pod(name, pod.uid)

    def pods_of(self, job: str) -> tuple[PodView, ...]:
        """Pods labelled with a job's name."""
        return tuple(pod for pod in self.pods.values() if pod.labels.get(LABEL_JOB) == job)

    def pods_on(self, node: str) -> list[PodView]:
        """Pods bound to a node."""
        return [pod for pod in self.pods.values() if pod.node == node]

    # Nodes

    def set_node(self, name: str, **facts: Any) -> None:
        """Changes a Node that is there."""
        node = self.nodes.get(name)
        if node is not None and (fresh := replace(node, **facts)) != node:
            self.nodes[name] = fresh
            self._notify("nodes", name)

    def put_node(self, node: Node) -> None:
        """A kubelet registers its node."""
        self.nodes[node.name] = node
        self._notify("nodes", node.name)

    def delete_node(self, name: str) -> None:
        """Deletes a Node object."""
        if self.nodes.pop(name, None) is not None:
            self._notify("nodes", name)

    def _version(self) -> int:
        self._count += 1
        return self._count
