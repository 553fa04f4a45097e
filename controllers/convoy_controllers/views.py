"""Views of pods, nodes, ranks and jobs: the plain data on which decisions are based."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_controllers.run_view import RunView
from convoy_crds.trainingjob_straggler import Proof

ENDED_PHASES = ("Failed", "Succeeded")
"""Phases of pods that no longer run."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """The end of a container, as the node's kubelet reports it."""

    name: str
    exit_code: int
    reason: str = ""
    """Kubernetes' reason, such as Error, OOMKilled or StartError."""
    message: str = ""
    """The container's termination message; if the container wrote none, the end of its log."""


@dataclass(frozen=True, slots=True)
class PodView:
    """The facts that the operator caches about a pod."""

    name: str
    uid: str
    phase: str
    node: str | None = None
    ip: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    """Unix seconds at which the pod was created."""
    deleting: bool = False
    leaving_since: float = 0.0
    """Unix seconds at which the pod's deletion was requested; 0 if the pod is not being deleted."""
    leaves_by: float = 0.0
    """Unix seconds at which the grace period of the pod's deletion ends."""
    owner_uid: str | None = None
    scheduler: str = ""
    """Name of the scheduler that must place the pod; empty for the default scheduler of Kubernetes."""
    unschedulable: str = ""
    """The scheduler's message if it finds no node for the pod; empty otherwise."""
    judged: bool = False
    """True if a scheduler has tried to place the pod: the pod has the condition PodScheduled."""
    gated: bool = False
    """True while a scheduling gate holds the pod back."""
    container: str = ""
    """Name of the container that runs the ranks."""
    waiting_container: str = ""
    """Name of the first container that waits for something that may never come, such as an image; empty if
    no container waits.
    """
    waiting_reason: str = ""
    """Reason for which `waiting_container` waits, such as ImagePullBackOff."""
    waiting_message: str = ""
    exit_code: int | None = None
    """Exit code of the container that runs the ranks; None until it terminates."""
    termination_reason: str = ""
    """Reason for the end of the container that runs the ranks. If only the pod has ended, the reason for
    the end of the pod.
    """
    termination_message: str = ""
    failure: ContainerEnd | None = None
    """End of the init container that failed, or last end of a container that waits for the kubelet to
    restart it.
    """
    kubelet_reason: str = ""
    """Reason for which the kubelet ended or rejected the pod, such as Evicted, DeadlineExceeded or
    OutOfcpu.
    """
    kubelet_message: str = ""
    ends_by: float = 0.0
    """Unix seconds at which the pod's activeDeadlineSeconds expire; 0 if the pod has no deadline or has not
    started.
    """
    stoppers: tuple[str, ...] = ()
    """Probes and hooks of the ranks' container. If one of them fails, the kubelet stops the container."""
    image: str = ""
    """Image of `waiting_container`; if no container waits, image of the ranks' container."""
    image_ids: Mapping[str, str] = field(default_factory=dict)
    """Image that the node ran in each container, by digest, by name of the container."""
    disruption: str = ""
    """Reason of the pod's DisruptionTarget condition, such as EvictionByEvictionAPI."""
    ready: bool = False
    """True if the pod's Ready condition is True. Services send requests to ready pods only."""
    ready_changed: float = 0.0
    """Unix seconds at which the status of the pod's Ready condition last changed; 0 if the pod does not have
    the condition yet.
    """
    started: float = 0.0
    """Unix seconds at which the kubelet accepted the pod; 0 until then."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests of the whole pod in thousandths of each resource's unit, by name of the resource."""
    priority: int = 0
    """Priority of the pod, as admission has set it."""
    cpu_millicores: int = 0
    """Processor request of the ranks' container, in thousandths of a core; 0 without a request."""

    @property
    def needs_node(self) -> bool:
        """Return True if the pod still depends on its node: the pod has not ended, or the kubelet still has
        to remove it.
        """
        return self.phase not in ENDED_PHASES or self.deleting


@dataclass(frozen=True, slots=True)
class PodWarning:
    """An Event that explains why a pod does not start."""

    reason: str
    """The Event's reason, such as FailedMount."""
    message: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """The facts about a node that holds a pod of the job.

    The silence of an agent counts only if it is credible. It is not credible while a new leader starts, or
    while so many agents are silent that the operator's own network may have failed. It is also not credible
    for some time after the agent announced its exit.
    """

    name: str
    exists: bool = True
    """False after the Node object was deleted."""
    ready: bool = True
    """True if the Node exists and its Ready condition is True."""
    cordoned: bool = False
    agent_ready: bool = True
    """True if the node carries the agent-ready label, so that workers can be placed on it."""
    silent_seconds: float = 0.0
    """Seconds since the last message of the node's agent, if the agent counts as absent; 0 otherwise."""
    silent_since: float = 0.0
    """Unix seconds of the last message of the node's agent; 0 if `silent_seconds` is 0."""
    pods_reachable: bool = True
    """False if no pod on the node replied to the operator's last probe. A refused connection counts as a
    reply.
    """
    pods_replied: bool = False
    """True if a pod on the node was probed while the agent was silent, and replied."""
    lease_seconds: float = 0.0
    """Seconds since the node's kubelet last renewed its Lease. The operator reads the Lease only while the
    agent is silent.
    """
    attested_by: frozenset[str] = frozenset()
    """Names of the nodes whose agents have received a request of this node's agent within the last
    FENCE_SECONDS.
    """
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentHardware:
    """The hardware of a node, as its agent reported it."""

    driver: str = ""
    accelerators: tuple[str, ...] = ()
    """UUIDs of the accelerators."""


@dataclass(frozen=True, slots=True)
class MetricView:
    """The newest value of a metric that the training program measures itself."""

    name: str
    value: float | None
    """The value of the metric; None for NaN and infinity."""
    step: int
    """The step at which the rank reported the value."""


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank as its launcher reported it."""

    rank: int
    state: str
    """State of the rank's process: STARTING, RUNNING or EXITED."""
    exit_code: int = 0
    signal: int = 0
    oom: bool = False
    hung: bool = False
    command_not_found: bool = False
    stderr: str = ""
    step: int | None = None
    total_steps: int | None = None
    samples_per_second: float | None = None
    loss: float | None = None
    metrics: tuple[MetricView, ...] = ()
    """The program's own metrics. Within a pod, at most one rank reports a metric of a given name."""
    diverged: bool = False
    """True if the rank's loss is NaN or infinite."""
    time: float = 0.0
    """Unix seconds at which the rank's newest step ended."""
    checkpoint_seconds: float = 0.0
    """Seconds for which saves have stalled the rank's steps in this incarnation."""
    save_seconds: float = 0.0
    """Seconds for which the newest save of this incarnation stalled the rank's steps; 0 before the first
    save.
    """
    copy_seconds: float = 0.0
    """Seconds for which the newest fully copied save kept memory and links busy; 0 before the first such
    save. The busy time ends when all copies of the save are made. If the job keeps no copies, it ends
    when the save is committed.
    """
    restore_seconds: float = 0.0
    """Seconds that the rank took to read the checkpoint; 0 if the rank read none or does not report the
    time.
    """
    started: float = 0.0
    """Unix seconds at which the rank's process started; 0 if it has not started."""
    first_step: float = 0.0
    """Unix seconds at which the rank's first step of this incarnation ended; 0 if no step has ended."""
    ended: float = 0.0
    """Unix seconds at which the rank's process ended; 0 if it has not ended."""
    finished: float = 0.0
    """Unix seconds at which the rank's main program returned; 0 if it has not returned."""
    loading: float = 0.0
    """Unix seconds at which a serving rank last reported progress of loading its model; 0 if it has not."""
    termination_requested: bool = False
    """True if the rank's pod or launcher was asked to stop before the rank ended. A rank that saves its
    state may then end with exit code 0.
    """
    result: str = ""
    """The job's result as its program wrote it, unchecked; empty if there is none."""
    facts: RunView | None = None
    """Facts about the pod; None for all ranks but the first of the pod, and before it has measured them."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A pod's use of the memory for checkpoints on its node."""

    opened: bool = False
    """True if a rank of this incarnation has requested memory or a checkpoint."""
    wanted: int = 0
    """Bytes that the ranks of the pod need for their buffers; 0 before all of them have requested memory."""
    limit: int = 0
    """Maximum bytes of the job on the node; 0 if only the memory of the node limits the job."""
    copies: int = 0
    """Number of copies in the assignment that the agent has."""


@dataclass(frozen=True, slots=True)
class ReplicaStateView:
    """The settings of a replica's state that its agent has."""

    hosts: tuple[str, ...] = ()
    """Nodes that keep copies of the state."""
    limit: int = 0


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A generation that a TrainingJob has saved to a store, as agents name it."""

    namespace: str
    job_uid: str
    """`metadata.uid` of the TrainingJob."""
    store: str
    incarnation: int
    """Incarnation of the generation; 0 for the newest one that has saved the step."""
    step: int


@dataclass(frozen=True, slots=True)
class ModelView:
    """The delivery of a model to a pod, as its agent reported it."""

    source: ModelSource
    ready: bool = False
    """True if the model is in the pod."""
    failure: str = ""
    """Kind of the failure (hub.proto ModelReport.Failure); empty if the delivery has not failed."""
    message: str = ""
    progress: float = 0.0
    """Unix seconds of the newest progress of the download; 0 before the first."""


@dataclass(frozen=True, slots=True)
class CommitView:
    """A generation that is committed at one tier."""

    incarnation: int
    step: int
    time: float = 0.0
    """Unix seconds at which the generation was committed."""


@dataclass(frozen=True, slots=True)
class SlowView:
    """A cause of slowness in a job, as the detector found it (guard/causes.py)."""

    cause: str
    place: str
    ranks: tuple[int, ...] = ()
    """The slow ranks; empty if the detector accuses none."""
    nodes: tuple[str, ...] = ()
    since: int = 0
    """Step at which the slowness began."""
    slowdown: float = 0.0
    """Extra time relative to the rank's peers: 0.4 means 40 % longer."""
    lost: float = 0.0
    """Share of the job's time that the slowness costs at most, 0 to 1."""
    persistent: bool = False
    proof: Proof = Proof.PEERS
    """Basis on which the ranks are accused."""


@dataclass(frozen=True, slots=True)
class GuardView:
    """The findings from the telemetry of an incarnation's ranks."""

    incarnation: int
    enough_peers: bool
    """True if enough ranks do the same work for a comparison that shows which of them is slow."""
    slow: tuple[SlowView, ...] = ()
    canary_missed: bool = False
    """True if the detector missed its canary, an injected slow rank. "No straggler" is then not reliable."""
    layout_unknown: bool = False
    """True if the job seems to be a pipeline whose stages are unknown, so no ranks can be compared."""


@dataclass(frozen=True, slots=True)
class TraceView:
    """The trace of one rank, as its agent reported it."""

    rank: int
    stored: bool
    failure: str = ""
    """Kind of the failure (hub.proto TraceReport.Failure); empty if the trace is stored."""
    message: str = ""
    bytes: int = 0
    sha256: str = ""
    nodes: int = 0
    comm_bytes_per_step: int = 0
    exposed_communication_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot, as its agent reported it."""

    pod_uid: str
    node: str
    launcher_connected: bool
    """True if the launcher is connected to its agent; False also while the agent itself is silent."""
    incarnation: int = 0
    master_port: int = 0
    port_incarnation: int = 0
    ranks: tuple[RankView, ...] = ()
    agent_away: bool = False
    """True while the agent is silent. The other fields then show the agent's last report."""
    stepped: float = 0.0
    """Unix seconds, by the operator's clock, at which a report last showed a new step of the slot's ranks."""
    committed: Mapping[str, CommitView] = field(default_factory=dict)
    """Newest generation that the slot's agent saw committed at each tier, by name of the tier."""
    troubles: tuple[tuple[str, str], ...] = ()
    """Problems with checkpoints, as pairs: the kind (Trouble in hub.proto) and the agent's explanation."""
    interval_seconds: int = 0
    """Seconds between two saves that the operator last sent to the slot's agent; 0 if the pod's own setting
    applies.
    """
    memory: MemoryView | None = None
    """The pod's use of the memory for checkpoints; None without an assignment of memory."""
    replica_state: ReplicaStateView | None = None
    """The settings of the replica's state; None if the pod may save none."""
    model: ModelView | None = None
    """The delivery of the pod's model; None if the agent knows no order for one."""
    endpoints: tuple[str, ...] = ()
    """Addresses of replicas that the ranks know in this incarnation (`commands.Endpoints`)."""
    members_incarnation: int = 0
    """Incarnation of the process group whose addresses an Independent pod knows; 0 if it knows none."""
    trace: tuple[int, int] = (0, 0)
    """Recording and attempt of the order for a trace that the agent has; zeros if it has none."""
    traces: tuple[TraceView, ...] = ()
    """The traces of that order that are stored or have failed."""
    slot_token_valid: bool = True
    """True if other agents accept the slot token. With this token the slot's agent proves that the slot is
    on its node.
    """
