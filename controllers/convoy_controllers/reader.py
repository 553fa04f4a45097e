"""The controllers' view of the cluster: caches, hub and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.faults import FaultState
from convoy_controllers.healthsweep.observed import NodeReport
from convoy_controllers.nodehealth.binding import Bindings, ReportedNode
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.placement.forecast.ranking import Forecasts
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.resources import Resource
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.traffic import Figures
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.spotpool.observed import TraceLookup
from convoy_controllers.views import AgentHardware, GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_controllers.workers.network import NetworkSettings
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.kind import Kind
from convoy_crds.meta import Model
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults

M = TypeVar("M", bound=Model)


class HubView(Protocol):
    """The agents' reports, and the hub's knowledge about their nodes."""

    @property
    def silent_seconds(self) -> float:
        """Return the seconds of silence after which an agent counts as absent."""
        ...

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """Return the agents' reports on these pods, by pod uid."""
        ...

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """Return the nodes of these pods, by name."""
        ...

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes whose memory holds checkpoints of a job."""
        ...

    def states(self, job_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes that hold each state of a ServingJob's replicas, by uid of the state."""
        ...

    def guard(self, job_uid: str) -> GuardView | None:
        """Return the findings from the telemetry of a job's ranks; None before the ranks have reported a
        step.
        """
        ...

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """Return the probe results for a store; None until the operator has read the store's Secret."""
        ...

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node; None before its agent has reported it."""
        ...

    def agent_connected(self, node: str) -> bool:
        """Return True if the agent of a node counts as present."""
        ...

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, the suspicions that jobs raise against it."""
        ...

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, slowness that jobs notice on the node. No job proves that the node causes the
        slowness.
        """
        ...

    def notices(self) -> Mapping[str, tuple[Notice, ...]]:
        """Return the notices of agents that hold at present, by name of the node. The name is empty for
        instances that have not joined.
        """
        ...

    def notice_problems(self) -> Mapping[str, str]:
        """Return the reason why an agent does not read the metadata service of its node's SpotPool, by name
        of the node. Only problems that last are returned.
        """
        ...

    def traffic(self, pods: tuple[PodView, ...]) -> Figures | None:
        """Return the figures of the requests of these pods together; None if no pod reports its requests."""
        ...

    def loads(self, pods: tuple[PodView, ...]) -> Mapping[str, Load]:
        """Return the load of each of these pods that has reported it lately, by pod uid."""
        ...

    def paces(self) -> Mapping[str, JobPace]:
        """Return the speed of each job, by `namespace/name` of the job."""
        ...

    def peer_address(self, node: str) -> str:
        """Return the address where a node's agent serves its peers; empty if the agent never reported one."""
        ...

    def faults(self, pods: tuple[PodView, ...]) -> Mapping[str, FaultState]:
        """Return the faults that were ordered for these pods and reported, by id of the fault."""
        ...

    @property
    def sweeps(self) -> Callable[[str, str], NodeReport | None]:
        """Return a function (node, order) -> the node's report on this order of a health sweep; None
        without a report.
        """
        ...


class Reader(Protocol):
    """Read access to caches, hub and clock. Reading changes nothing."""

    def now(self) -> datetime:
        """Return the time of this reconcile."""
        ...

    @property
    def hub(self) -> HubView:
        """Return the reports of agents."""
        ...

    def get(self, kind: Kind[M], name: str, namespace: str = "") -> M | None:
        """Return an object; None if it does not exist or is invalid."""
        ...

    def stored(self, kind: Kind[Any], name: str, namespace: str = "") -> CachedObject | None:
        """Return an object as the API server stores it; None if it does not exist."""
        ...

    def all(self, kind: Kind[M]) -> Sequence[M]:
        """Return all valid objects of a kind."""
        ...

    def exists(self, kind: Kind[Any], name: str, namespace: str = "") -> bool:
        """Return True if an object of that name exists, valid or not."""
        ...

    def referring(self, kind: Kind[Any], path: str, value: str) -> Iterable[CachedObject]:
        """Return the objects of a kind that have not ended and whose field at `path` equals `value`.

        The controller must have a watch for `path`, made by `by_field`.
        """
        ...

    def live(self, kind: Kind[Any]) -> Iterable[CachedObject]:
        """Return the objects of a kind that have not ended."""
        ...

    def pods(self, namespace: str, job: str) -> tuple[PodView, ...]:
        """Return the pods whose job label names this job. Pods with another owner may be among them."""
        ...

    def members_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of jobs on this node that still depend on it (`PodView.needs_node`)."""
        ...

    def jobs_on(self, kind: Kind[Any], node: str) -> Iterable[tuple[str, str]]:
        """Return namespace and name of each job of a kind that has pods on this node, according to the
        pods' labels.
        """
        ...

    def children(self, resource: Resource, owner_uid: str) -> Sequence[CachedObject]:
        """Return the objects of a resource that plans of this owner have applied."""
        ...

    def objects(self, resource: Resource) -> Iterable[CachedObject]:
        """Return all objects of a resource that a watch with `whole` reads."""
        ...

    def warning(self, pod_uid: str) -> PodWarning | None:
        """Return the newest Event that explains why a pod does not start; None if there is none."""
        ...

    def nodes(self) -> Iterable[Node]:
        """Return all nodes."""
        ...

    def node(self, name: str) -> Node | None:
        """Return a node; None if it does not exist."""
        ...

    def rooms(self) -> Rooms | None:
        """Return all nodes with the room on them; None until the operator knows the pods of others. The
        first call makes the operator read them.
        """
        ...

    @property
    def served(self) -> frozenset[Resource]:
        """Return the optional resources that the API server serves."""
        ...

    def reported_node(self, node: Node) -> ReportedNode:
        """Return a node together with what its agent has reported about it."""
        ...

    def bindings(self) -> Bindings:
        """Return the bindings of hardware to nodes: which node has which hardware."""
        ...

    @property
    def checkpoint_defaults(self) -> CheckpointDefaults:
        """Return the chart's settings for jobs without `spec.checkpoint.tiers`."""
        ...

    @property
    def network(self) -> NetworkSettings:
        """Return the chart's settings for the NetworkPolicies of jobs."""
        ...

    @property
    def agent_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that carry the agent-ready label."""
        ...

    def price_trace(self, pool: str) -> TraceLookup | None:
        """Return the price trace of a SpotPool; None if it has none, or was not read yet."""
        ...

    @property
    def forecasts(self) -> Forecasts:
        """Return the results of the simulations that plans have asked for."""
        ...

    def memory(self, parent_uid: str) -> Any:
        """Return the `memory` of the newest executed plan of a parent; None if there is none."""
        ...

    def refused(self, parent_uid: str, generation: int) -> Mapping[str, Refusal]:
        """Return the API server's reasons for refusing to create a parent's children at the last attempt,
        by name of the child.

        `generation` is the parent's metadata generation.
        """
        ...
