"""The operator's view of a simulated cluster for one TrainingJob."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.forecast.ranking import Forecasts
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.resources import Resource
from convoy_controllers.simulate import stores
from convoy_controllers.simulate.api import Stored
from convoy_controllers.simulate.node_room import operator_rooms
from convoy_controllers.views import GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_controllers.workers.network import NetworkSettings
from convoy_controllers.workers.refusal import Refusal
from convoy_crds import checkpointstore, engine, trainingjob
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.kind import Kind
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults
from convoy_crds.trainingjob_status import TERMINAL

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster


class StoredJobs:
    """Stored TrainingJobs as the JSON objects of the operator's cache. Each version is converted once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, CachedObject]] = {}

    def convert(self, stored: Stored[Any]) -> CachedObject:
        """Return a job as the operator caches it."""
        name = stored.job.metadata.name
        version, found = self._known.get(name, (-1, None))
        if found is None or version != stored.version:
            found = cached_job(stored)
            self._known[name] = stored.version, found
        return found


def cached_job(stored: Stored[Any]) -> CachedObject:
    """Return a job as the operator caches it."""
    meta = stored.job.metadata
    return CachedObject(meta.namespace or "", meta.name, meta.uid or "", stored.version, stored.job.to_dict())


class JobHub:
    """The agents' reports."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def silent_seconds(self) -> float:
        """See `reader.HubView`."""
        return self._cluster.latencies.silent

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """See `reader.HubView`."""
        return self._cluster.hub.slots(pods)

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """See `reader.HubView`."""
        return self._cluster.hub.nodes(pods)

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return nothing: memory of nodes is not simulated."""
        return ()

    def guard(self, job_uid: str) -> GuardView | None:
        """Return None: telemetry is not simulated."""
        return None


class JobReader:
    """Reads caches and hub for one TrainingJob. It has the part of `reader.Reader` with which TrainingJobs
    are observed. Traces, queues and pools are not simulated.
    """

    def __init__(
        self,
        cluster: Cluster,
        known: StoredJobs,
        job: TrainingJob,
        pods: tuple[PodView, ...],
        refused: Mapping[str, Refusal],
    ) -> None:
        """`job` and `pods`: the job that is observed, and its pods. `refused`: the refusals of its pods."""
        self._cluster = cluster
        self._known = known
        self._job = job
        self._pods = pods
        self._refused = refused
        self.hub = JobHub(cluster)
        self.network = NetworkSettings()
        self.checkpoint_defaults: CheckpointDefaults = cluster.defaults
        self.served: frozenset[Resource] = cluster.served
        self.forecasts: Forecasts = {}

    def now(self) -> datetime:
        """Return the virtual time."""
        return self._cluster.kernel.time

    def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        """Return an object; None if it does not exist."""
        if kind is trainingjob.KIND:
            if name == self._job.metadata.name:
                return self._job
            stored = self._cluster.operator.cache.jobs.get(name)
            return stored.job if stored and isinstance(stored.job, TrainingJob) else None
        if kind is engine.KIND:
            return self._cluster.engines.get(name)
        if kind is checkpointstore.KIND:
            return next((one for one in self.all(kind) if one.metadata.name == name), None)
        return None

    def all(self, kind: Kind[Any]) -> Sequence[CheckpointStore]:
        """Return the store that the job names, and nothing of other kinds."""
        store = stores.store_of(self._job) if kind is checkpointstore.KIND else None
        return [store] if store else []

    def live(self, kind: Kind[Any]) -> Iterable[CachedObject]:
        """Return the TrainingJobs that have not ended, or the Engines."""
        if kind is engine.KIND:
            return [CachedObject("", name, name, 0, {"metadata": {}}) for name in self._cluster.engines]
        if kind is not trainingjob.KIND:
            return []
        stored = self._cluster.operator.cache.jobs.values()
        return [
            self._known.convert(one)
            for one in stored
            if isinstance(one.job, TrainingJob) and one.job.status.phase not in TERMINAL
        ]

    def pods(self, namespace: str, job: str) -> tuple[PodView, ...]:
        """Return the pods whose job label names this job."""
        return self._pods if job == self._job.metadata.name else self._cluster.operator.cache.pods(job)

    def children(self, resource: Resource, owner_uid: str) -> Sequence[CachedObject]:
        """Return the objects of a resource that plans of this owner have applied. The feature gate
        TopologyAwareWorkloadScheduling is off, so the API server drops the topology of PodGroups.
        """
        api = self._cluster.api
        found = []
        for applied, name in api.applied_for(owner_uid):
            if applied == resource:
                body = dict(api.objects[resource, name])
                spec = {key: one for key, one in body["spec"].items() if key != "schedulingConstraints"}
                body |= {"spec": spec, "status": dict(api.object_statuses.get((resource, name), {}))}
                found.append(CachedObject("", name, name, 0, body))
        return found

    def objects(self, resource: Resource) -> Iterable[CachedObject]:
        """Return the PriorityClasses, and nothing of other resources."""
        if resource.plural != "priorityclasses":
            return []
        priorities = self._cluster.api.priorities
        return [CachedObject("", name, name, 0, {"value": value}) for name, value in priorities.items()]

    def rooms(self) -> Rooms:
        """Return all nodes with the room on them."""
        operator = self._cluster.operator
        return operator_rooms(self._cluster.api.nodes.values(), operator.cache.all_pods(), operator.creating)

    def warning(self, pod_uid: str) -> PodWarning | None:
        """Return None: Events are not simulated."""
        return None

    def memory(self, parent_uid: str) -> None:
        """Return None: a TrainingJob remembers only places to compare, and no comparison is simulated."""

    def refused(self, parent_uid: str, generation: int) -> Mapping[str, Refusal]:
        """Return the reasons for refusing to create the job's children at the last attempt."""
        return self._refused

    @property
    def agent_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that carry the agent-ready label."""
        return frozenset(node.name for node in self._cluster.api.nodes.values() if node.agent_ready)
