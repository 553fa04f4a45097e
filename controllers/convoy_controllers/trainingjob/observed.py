"""The input of every decision about a TrainingJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_controllers.cached import CachedObject
from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.placement.forecast.case import Case
from convoy_controllers.placement.forecast.ranking import Forecasts
from convoy_controllers.placement.kueue.objects import QueueObjects
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.placement.yielding import SparePod
from convoy_controllers.resources import Resource
from convoy_controllers.views import GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_controllers.workers.network import NetworkSettings
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.spotpool import SpotPool
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults

Compared = tuple[tuple[str, Case], ...]
"""Places for the pods of a job, and the step there. The first is the one that packing chooses."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """A pod that the job gives up, to make room for a job of higher priority."""

    role: str
    replica: int
    claimant: str
    """Name of the other job, `namespace/name`."""
    priority: int
    """Priority of the other job."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the job, its pods and nodes, the agents' reports, and the objects that the spec names."""

    job: TrainingJob
    defaults: CheckpointDefaults = field(default_factory=CheckpointDefaults)
    """The chart's settings for jobs without tiers."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    engine: Engine | None = None
    """The Engine that `spec.engine` names; None if it does not exist."""
    known_engines: tuple[str, ...] = ()
    store: CheckpointStore | None = None
    """The CheckpointStore that `spec.checkpoint.tiers.remote.store` names; None if it does not exist."""
    trace_store: CheckpointStore | None = None
    """The CheckpointStore for the job's traces; None if it does not exist, or if the job records none."""
    known_stores: tuple[str, ...] = ()
    """Names of the stores that jobs of this namespace may use."""
    pools: Mapping[str, SpotPool] = field(default_factory=dict)
    """The SpotPools that the roles name, by name. Those that do not exist are missing."""
    known_pools: tuple[str, ...] = ()
    """Names of the SpotPools that jobs of this namespace may use."""
    source: TrainingJob | None = None
    """The job that `spec.checkpoint.resumeFrom` names; None if it does not exist."""
    pods: tuple[PodView, ...] = ()
    """Pods whose job label names this job, including pods of other owners."""
    slots: Mapping[str, SlotView] = field(default_factory=dict)
    """Agents' reports on the job's pods, by pod uid."""
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """The nodes of all `pods`, by name."""
    silent_seconds: float = SILENT_SECONDS
    """Seconds of silence after which an agent counts as absent."""
    rooms: Rooms | None = None
    """All nodes with the room on them; None if the job lacks no pod, or while the operator reads the pods of
    the cluster.
    """
    served: frozenset[Resource] = frozenset()
    """The optional resources that the API server serves."""
    queue: QueueObjects = field(default_factory=QueueObjects)
    """The objects of Kueue that matter to the job."""
    gang_objects: tuple[CachedObject, ...] = ()
    """The job's objects in the API of its gang scheduler, such as a PodGroup."""
    priority: int = 0
    """Priority of the job's pods."""
    spare: tuple[SparePod, ...] = ()
    """Pods that elastic jobs of lower priority can give up, if this job lacks pods."""
    yielded: tuple[Yielded, ...] = ()
    """Pods that this job gives up."""
    similar: tuple[str, ...] = ()
    """Names of other jobs that differ from this one only in values, and were created at the same time. Empty
    without `spec.lint`.
    """
    forecasts: Forecasts = field(default_factory=dict)
    """Results of simulations. Empty without `spec.placement.advise`."""
    compared: Compared = ()
    """The places that the last plan compared when it created all pods."""
    pace: JobPace | None = None
    """The measured step; None before the ranks have reported steps, and without `spec.placement.advise`."""
    agent_nodes: int = 0
    """Number of nodes with the agent-ready label."""
    holders: tuple[str, ...] = ()
    """Names of the nodes whose memory holds checkpoints of the job."""
    guard: GuardView | None = None
    """The findings from the ranks' telemetry; None before the ranks have reported a step."""
    warnings: Mapping[str, PodWarning] = field(default_factory=dict)
    """The newest Event of each pod that does not start, by pod uid."""
    create_errors: Mapping[str, Refusal] = field(default_factory=dict)
    """The API server's reasons for refusing children at the last attempt, by name of the child."""
