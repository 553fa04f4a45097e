"""The view of the cluster that observations are made of: caches, hub and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from convoy_controllers.cached import Node, Parent, Pod
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.healthsweep.observed import Told
from convoy_controllers.nodehealth.binding import Bindings, SeenNode
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_controllers.views import AgentHardware, GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.kind import Kind
from convoy_crds.meta import Model

M = TypeVar("M", bound=Model)


class HubView(Protocol):
    """The reports of agents, and what is known of their nodes."""

    @property
    def silent_seconds(self) -> float:
        """Silence after which an agent counts as absent."""
        ...

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """Return, by pod uid, the reports of the agents of the nodes those pods are on."""
        ...

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """Return, by name, the nodes those pods are on."""
        ...

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes whose memory holds checkpoints of a job."""
        ...

    def guard(self, job_uid: str) -> GuardView | None:
        """Return what the telemetry of a job's ranks shows; None before they have reported a step."""
        ...

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """Return what was found out about a store; None when its Secret was not looked up."""
        ...

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node; None before its agent has reported it."""
        ...

    def agent_connected(self, node: str) -> bool:
        """Return True if a node's agent is to be taken for present."""
        ...

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, what jobs hold against it."""
        ...

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, what jobs see of it that may lie in it and need not."""
        ...

    def paces(self) -> Mapping[str, JobPace]:
        """Return, by job (namespace/name), how fast it is."""
        ...

    def peer_address(self, node: str) -> str:
        """Return where a node's agent serves its peers; empty when it never said so."""
        ...

    @property
    def sweeps(self) -> Callable[[str, str], Told | None]:
        """(node, order) -> the node's report on that order of a health sweep."""
        ...


class Reader(Protocol):
    """Caches, hub and clock. Reading changes nothing."""

    def now(self) -> datetime:
        """Return the time of this reconcile."""
        ...

    @property
    def hub(self) -> HubView:
        """The reports of agents."""
        ...

    def get(self, kind: Kind[M], name: str, namespace: str = "") -> M | None:
        """Return an object; None if there is none, or if its model refuses it."""
        ...

    def all(self, kind: Kind[M]) -> Sequence[M]:
        """Return all valid objects of a kind."""
        ...

    def exists(self, kind: Kind[Any], name: str, namespace: str = "") -> bool:
        """Return True if there is an object of that name, valid or not."""
        ...

    def referring(self, kind: Kind[Any], path: str, value: str) -> Iterable[Parent]:
        """Return the objects of a kind whose field at `path` has that value. The path is in a `by_field`."""
        ...

    def live(self, kind: Kind[Any]) -> Iterable[Parent]:
        """Return the objects of a kind that are not over."""
        ...

    def pods(self, namespace: str, job: str) -> tuple[PodView, ...]:
        """Return the pods that carry a job's name in the job label, that job's own and others'."""
        ...

    def members_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of jobs that need a node."""
        ...

    def jobs_on(self, node: str) -> Iterable[tuple[str, str]]:
        """Return namespace and name of the jobs that the pods needing a node claim to be of."""
        ...

    def warning(self, pod_uid: str) -> PodWarning | None:
        """Return the newest Event that says what keeps a pod from coming up."""
        ...

    def nodes(self) -> Iterable[Node]:
        """Return all nodes."""
        ...

    def node(self, name: str) -> Node | None:
        """Return a node."""
        ...

    def seen_node(self, node: Node) -> SeenNode:
        """Return a node with what its agent has reported of it."""
        ...

    def bindings(self) -> Bindings:
        """Return which hardware is where."""
        ...

    @property
    def agent_nodes(self) -> frozenset[str]:
        """The names of the nodes that carry the agent-ready label."""
        ...

    def refused(self, parent_uid: str, generation: int) -> Mapping[str, Refusal]:
        """Return, by name, why the API server refused to create a parent's children at the last try."""
        ...
