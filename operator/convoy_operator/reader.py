"""The view of the caches, the hub and the clock for controllers (`convoy_controllers.reader.Reader`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.nodehealth.binding import Bindings, ReportedNode, bind
from convoy_controllers.placement.forecast.ranking import Forecasts
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.reader import HubView
from convoy_controllers.resources import Resource
from convoy_controllers.spotpool.observed import TraceLookup
from convoy_controllers.views import PodView, PodWarning
from convoy_controllers.workers.network import NetworkSettings
from convoy_controllers.workers.refusal import Refusal
from convoy_crds import nodehealth
from convoy_crds.kind import Kind
from convoy_crds.meta import Model
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults
from convoy_operator.cluster_cache import ClusterCache

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Model)

BOUND_SECONDS = 1.0
"""Maximum age in seconds of the cached bindings of hardware to nodes. Agents report hardware without
changing an API object, so the bindings are computed again even if no object changes.
"""
_LONG_AGO = datetime.fromtimestamp(0, UTC)


class Models:
    """The typed models of cached objects. Each version of an object is parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Any]] = {}
        """The parsed version of each object, with its model or its ValidationError; by uid."""

    def read(self, kind: Kind[M], parent: CachedObject) -> M:
        """Return the model of an object. Raises ValidationError if the object is invalid."""
        version, found = self._known.get(parent.uid, (-1, None))
        if version != parent.version:
            try:
                found = kind.model.model_validate(parent.raw)
            except ValidationError as error:
                found = error
            self._known[parent.uid] = parent.version, found
        if isinstance(found, ValidationError):
            # Drop the traceback: it would grow with each raise and keep the callers' stack frames in memory.
            raise found.with_traceback(None)
        return found  # type: ignore[no-any-return]

    def drop(self, uid: str) -> None:
        """Drop the model of a deleted object."""
        self._known.pop(uid, None)


class ClusterReader:
    """Reads the caches, the hub and the clock. It changes nothing except its own cache of models and
    bindings, and the memories of plans.
    """

    def __init__(
        self,
        cache: ClusterCache,
        hub: HubView,
        refused: Callable[[str, int], Mapping[str, Refusal]] = lambda uid, generation: {},
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        checkpoint_defaults: CheckpointDefaults | None = None,
        network: NetworkSettings | None = None,
        price_trace: Callable[[str], TraceLookup | None] = lambda pool: None,
        served: Callable[[], frozenset[Resource]] = frozenset,
        forecasts: Forecasts | None = None,
    ) -> None:
        """`refused` returns the refusals of a parent's children, by the parent's uid and metadata
        generation. `checkpoint_defaults`: settings for jobs without tiers. `network`: settings for the
        NetworkPolicies of jobs. `price_trace` returns the price trace of a SpotPool. `served` returns the
        optional resources that the API server serves. `forecasts`: results of simulations.
        """
        self._served = served
        self._forecasts: Forecasts = {} if forecasts is None else forecasts
        self._price_trace = price_trace
        self._network = network or NetworkSettings()
        self._checkpoint_defaults = checkpoint_defaults or CheckpointDefaults()
        self._cache = cache
        self._hub = hub
        self._refused = refused
        self._now = now
        self._clock = clock
        self._models = Models()
        self._bindings: tuple[float, Bindings] | None = None
        self._memories: dict[str, object] = {}
        """The memory of the newest executed plan of each object, by uid."""
        for store in cache.kinds.values():
            store.listen(self._changed)
        cache.nodes.listen(self._node_changed)
        cache.objects(nodehealth.KIND).listen(self._health_changed)

    def now(self) -> datetime:
        """Return the current time."""
        return self._now()

    @property
    def checkpoint_defaults(self) -> CheckpointDefaults:
        """Return the chart's settings for jobs without `spec.checkpoint.tiers`."""
        return self._checkpoint_defaults

    @property
    def network(self) -> NetworkSettings:
        """Return the chart's settings for the NetworkPolicies of jobs."""
        return self._network

    @property
    def hub(self) -> HubView:
        """Return the view of the agents' reports."""
        return self._hub

    def read(self, kind: Kind[M], parent: CachedObject) -> M:
        """Return the model of an object. Raises ValidationError if the object is invalid."""
        return self._models.read(kind, parent)

    def get(self, kind: Kind[M], name: str, namespace: str = "") -> M | None:
        """Return the model of an object; None if the object does not exist or is invalid."""
        parent = self._cache.objects(kind).get(namespace, name)
        return self._valid(kind, parent) if parent is not None else None

    def stored(self, kind: Kind[Any], name: str, namespace: str = "") -> CachedObject | None:
        """Return an object as the API server stores it; None if it does not exist."""
        return self._cache.objects(kind).get(namespace, name)

    def all(self, kind: Kind[M]) -> Sequence[M]:
        """Return the models of all valid objects of a kind."""
        found = (self._valid(kind, parent) for parent in self._cache.objects(kind))
        return [model for model in found if model is not None]

    def exists(self, kind: Kind[Any], name: str, namespace: str = "") -> bool:
        """Return True if an object with this name exists, valid or not."""
        return self._cache.objects(kind).get(namespace, name) is not None

    def referring(self, kind: Kind[Any], path: str, value: str) -> Iterable[CachedObject]:
        """Return the unfinished objects of a kind whose field at `path` has the given value."""
        return [
            one for one in self._cache.objects(kind).by_index(path, value) if not self._cache.over(kind, one)
        ]

    def live(self, kind: Kind[Any]) -> Iterable[CachedObject]:
        """Return the unfinished objects of a kind."""
        return [one for one in self._cache.objects(kind) if not self._cache.over(kind, one)]

    def pods(self, namespace: str, job: str) -> tuple[PodView, ...]:
        """Return all pods whose job label names the job, including pods of other owners."""
        return tuple(pod.view for pod in self._cache.pods.indexed((namespace, job)))

    def members_on(self, node: str) -> Sequence[Pod]:
        """Return the pods that belong to a job and still need the node."""
        return self._cache.members_on(node)

    def jobs_on(self, kind: Kind[Any], node: str) -> Iterable[tuple[str, str]]:
        """Return the namespace and name of each job of a kind that has pods which need the node. The pods'
        labels name the job.
        """
        return [(key.namespace, key.name) for key in self._cache.jobs_on(node) if key.kind == kind.name]

    def children(self, resource: Resource, owner_uid: str) -> Sequence[CachedObject]:
        """Return the objects of a resource that the operator has applied for this owner."""
        return self._cache.children(resource, owner_uid)

    def objects(self, resource: Resource) -> Iterable[CachedObject]:
        """Return all objects of a resource that a watch with `whole` reads."""
        return self._cache.whole[resource]

    def warning(self, pod_uid: str) -> PodWarning | None:
        """Return the newest Warning Event that explains why a pod does not start; None if none is known."""
        return self._cache.pod_warnings.get(pod_uid)

    def nodes(self) -> Iterable[Node]:
        """Return all nodes."""
        return self._cache.nodes

    def node(self, name: str) -> Node | None:
        """Return a node; None if it does not exist."""
        return self._cache.nodes.get("", name)

    def rooms(self) -> Rooms | None:
        """Return all nodes with the room on them; None until the pods of others are known."""
        self._cache.others_wanted.set()
        if not self._cache.others_known:
            return None
        found = self._cache.usage.rooms()
        found.waiting = self._cache.waiting
        return found

    @property
    def served(self) -> frozenset[Resource]:
        """Return the optional resources that the API server serves."""
        return self._served()

    def reported_node(self, node: Node) -> ReportedNode:
        """Return a node together with the data that its agent reported."""
        hardware = self._hub.hardware(node.name)
        return ReportedNode(
            name=node.name,
            uid=node.uid,
            created=node.created or _LONG_AGO,
            labels=node.labels,
            machine_id=node.machine_id,
            boot_id=node.boot_id,
            driver=hardware.driver if hardware is not None else "",
            accelerators=hardware.accelerators if hardware is not None else None,
            agent_connected=self._hub.agent_connected(node.name),
            schedulable=node.ready and node.agent_ready and not node.cordoned,
        )

    def bindings(self) -> Bindings:
        """Return the assignment of hardware to nodes, at most BOUND_SECONDS old."""
        now = self._clock()
        if self._bindings is None or now - self._bindings[0] >= BOUND_SECONDS:
            nodes = [self.reported_node(node) for node in self._cache.nodes]
            self._bindings = now, bind(nodes, self.all(nodehealth.KIND))
        return self._bindings[1]

    @property
    def agent_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that carry the agent-ready label."""
        return self._cache.ready_nodes

    def price_trace(self, pool: str) -> TraceLookup | None:
        """Return the price trace of a SpotPool; None if it has none, or was not read yet."""
        return self._price_trace(pool)

    @property
    def forecasts(self) -> Forecasts:
        """Return the results of the simulations that plans have asked for."""
        return self._forecasts

    def memory(self, parent_uid: str) -> Any:
        """Return the `memory` of the newest executed plan of a parent; None if there is none."""
        return self._memories.get(parent_uid)

    def keep_memory(self, parent_uid: str, memory: object) -> None:
        """Keep the `memory` of an executed plan."""
        self._memories[parent_uid] = memory

    def refused(self, parent_uid: str, generation: int) -> Mapping[str, Refusal]:
        """Return the children of a parent that the API server refused and that may not be retried yet, by
        child name.
        """
        return self._refused(parent_uid, generation)

    def _valid(self, kind: Kind[M], parent: CachedObject) -> M | None:
        try:
            return self._models.read(kind, parent)
        except ValidationError:
            # Treat an invalid object as absent. The object's own reconcile reports the fault.
            return None

    def _changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._models.drop(before.uid)
            self._memories.pop(before.uid, None)

    def _node_changed(self, before: Node | None, after: Node | None, own: bool) -> None:
        if _placed(before) != _placed(after):
            self._bindings = None

    def _health_changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is None or after is None or before.status.get("nodeRef") != after.status.get("nodeRef"):
            self._bindings = None


def _placed(node: Node | None) -> object:
    """Return the fields of a node from which its binding to hardware is computed."""
    if node is None:
        return None
    state = node.ready, node.agent_ready, node.cordoned, node.boot_id
    return node.uid, node.machine_id, node.created, dict(node.labels), state
