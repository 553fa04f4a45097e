"""The input of every decision about a ServingJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_controllers.cached import CachedObject
from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.resources import Resource
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.revision import Revision
from convoy_controllers.servingjob.scaling.memory import Memories
from convoy_controllers.servingjob.traffic import Figures
from convoy_controllers.views import NodeView, PodView, PodWarning, SlotView
from convoy_controllers.workers.network import NetworkSettings
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the job, its pods and nodes, the agents' reports, and the objects that the spec names."""

    job: ServingJob
    network: NetworkSettings = field(default_factory=NetworkSettings)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """The Engines that `spec.roles[].engine` names and that exist, by name."""
    known_engines: tuple[str, ...] = ()
    revisions: tuple[Revision, ...] = ()
    """The stored revisions, in any order."""
    store: CheckpointStore | None = None
    """The CheckpointStore that `spec.model.checkpoint.store` names; None if it does not exist."""
    known_stores: tuple[str, ...] = ()
    """Names of the stores that jobs of this namespace may use. Empty if neither the spec nor a revision needs
    a store.
    """
    source: TrainingJob | None = None
    """The job that `spec.model.checkpoint.job` names; None if it does not exist."""
    pods: tuple[PodView, ...] = ()
    """Pods whose job label names this job, including pods of other owners."""
    slots: Mapping[str, SlotView] = field(default_factory=dict)
    """Agents' reports on the job's pods, by pod uid."""
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """The nodes of all `pods`, by name."""
    front: str = ""
    """Value of the endpoint label in the pods to which the Service leads; empty without a Service."""
    endpoints: frozenset[str] | None = None
    """Uids of the ready pods in the Service's EndpointSlices; None if it has no slice."""
    silent_seconds: float = SILENT_SECONDS
    """Seconds of silence after which an agent counts as absent."""
    agent_nodes: int = 0
    """Number of nodes with the agent-ready label."""
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The nodes that hold each saved state of a replica, by uid of the state. Empty if replicas may save
    none.
    """
    warnings: Mapping[str, PodWarning] = field(default_factory=dict)
    """The newest Event of each pod that does not start, by pod uid."""
    create_errors: Mapping[str, Refusal] = field(default_factory=dict)
    """The API server's reasons for refusing children at the last attempt, by name of the child."""
    traffic: Figures | None = None
    """Figures of all replicas together; None if no replica reports its requests."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """Load of each pod that has reported it lately, by pod uid. Empty unless Convoy scales a role."""
    memory: Memories = field(default_factory=dict)
    """Memory of the autoscaler since its last decision about each role."""
    rooms: Rooms | None = None
    """All nodes with the room on them; None if no replica lacks pods, or while the operator reads the pods of
    the cluster.
    """
    served: frozenset[Resource] = frozenset()
    """The optional resources that the API server serves."""
    gang_objects: tuple[CachedObject, ...] = ()
    """The PodGroups of the replicas."""
    decided: Mapping[str, int] = field(default_factory=dict)
    """Number of replicas of each role for which the autoscaler has decided in this plan."""

    def desired(self, role: str) -> int:
        """Return the desired number of replicas of a role; 0 for an unknown role."""
        decided = self.decided.get(role)
        return self.job.desired(role) if decided is None else decided

    @property
    def own_pods(self) -> tuple[PodView, ...]:
        """Return the pods that the job owns."""
        return tuple(pod for pod in self.pods if pod.owner_uid == self.job.metadata.uid)
