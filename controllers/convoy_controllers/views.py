"""Views of pods, nodes, ranks and jobs: the plain data that decisions are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ENDED_PHASES = ("Failed", "Succeeded")
"""Phases of pods that run no more."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended, as its kubelet reports it."""

    name: str
    exit_code: int
    reason: str = ""
    """Such as Error, OOMKilled, StartError."""
    message: str = ""
    """Its termination message: what it wrote for that, else the end of its log."""


@dataclass(frozen=True, slots=True)
class PodView:
    """What the operator keeps of a pod."""

    name: str
    uid: str
    phase: str
    node: str | None = None
    ip: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    """Unix seconds."""
    deleting: bool = False
    leaving_since: float = 0.0
    """Unix seconds at which a pod that is deleting was told to go."""
    leaves_by: float = 0.0
    """Unix seconds at which its grace ends."""
    owner_uid: str | None = None
    scheduler: str = ""
    """Name of the scheduler that is to place it, where that is not Kubernetes' own."""
    unschedulable: str = ""
    """The scheduler's message while it finds no node."""
    gated: bool = False
    """Somebody holds the pod back by a scheduling gate, and places it later."""
    container: str = ""
    """Name of the container that runs the ranks."""
    waiting_container: str = ""
    """The first container that waits for something that may not come."""
    waiting_reason: str = ""
    """Why it waits, such as ImagePullBackOff."""
    waiting_message: str = ""
    exit_code: int | None = None
    """Exit code of the ranks' container, once it terminated."""
    termination_reason: str = ""
    """Why that ended; of a pod that ended without it, why the pod did."""
    termination_message: str = ""
    failure: ContainerEnd | None = None
    """The init container that failed, or the last end of the waiting container, which is started again."""
    kubelet_reason: str = ""
    """Why the kubelet itself ended or refused the pod, such as Evicted, DeadlineExceeded, OutOfcpu."""
    kubelet_message: str = ""
    ends_by: float = 0.0
    """Unix seconds at which the pod's activeDeadlineSeconds are over; 0 without any, or before its start."""
    stoppers: tuple[str, ...] = ()
    """Probes and hooks of the ranks' container that make its kubelet stop it when they fail."""
    image: str = ""
    """Image of the container that waits, else of the ranks'."""
    disruption: str = ""
    """Reason of the pod's DisruptionTarget condition, such as EvictionByEvictionAPI."""

    @property
    def needs_node(self) -> bool:
        """Whether anything still depends on its node: it has not ended, or its kubelet has to remove it."""
        return self.phase not in ENDED_PHASES or self.deleting


@dataclass(frozen=True, slots=True)
class PodWarning:
    """An Event that says what keeps a pod from coming up."""

    reason: str
    """Such as FailedMount."""
    message: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the operator knows of a node that holds a pod of the job. Silence that is not to be believed (a
    leader that has just begun, too many silent at once, an announced exit) is none."""

    name: str
    exists: bool = True
    """False once its Node object is gone."""
    ready: bool = True
    """The node's own Ready condition."""
    cordoned: bool = False
    agent_ready: bool = True
    """Whether it carries the agent-ready label: workers can be placed on it."""
    silent_seconds: float = 0.0
    """For which nothing has come from its agent, once that is longer than the limit; 0 before."""
    silent_since: float = 0.0
    """Unix seconds of the last sign of its agent, while `silent_seconds` is not 0."""
    pods_reachable: bool = True
    """Whether a pod on it answered when the operator last tried: a connection refused is an answer."""
    pods_replied: bool = False
    """Whether a pod on it was asked while its agent is silent, and answered."""
    lease_seconds: float = 0.0
    """Age of the kubelet's last renewal of its Lease, looked up while the agent is silent."""
    attested_by: frozenset[str] = frozenset()
    """Nodes whose agents have heard of its agent within the fencing time."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentHardware:
    """The hardware of a node, as its agent reported it."""

    driver: str = ""
    accelerators: tuple[str, ...] = ()
    """UUIDs."""


@dataclass(frozen=True, slots=True)
class MetricView:
    """The newest value of a figure that the training program measures itself."""

    name: str
    value: float | None
    """None for NaN and infinity."""
    step: int
    """The step at which the rank reported the value."""


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank as its launcher reported it."""

    rank: int
    state: str
    """STARTING, RUNNING or EXITED."""
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
    """The program's own figures. In each pod, one rank at most has a figure of each name."""
    diverged: bool = False
    """Its loss is no number."""
    time: float = 0.0
    """Unix seconds of the progress."""
    checkpoint_seconds: float = 0.0
    """For which saving has held up this incarnation's steps."""
    save_seconds: float = 0.0
    """For which its newest save of this incarnation held them up; 0 before the first."""
    copy_seconds: float = 0.0
    """For which that save, or one before it, kept memory and links busy: until its copies were made, or
    without copies until it was committed. 0 before the first."""
    restore_seconds: float = 0.0
    """For which it read what this incarnation goes on from; 0 where it does not tell, or read nothing."""
    started: float = 0.0
    """Unix seconds at which its process began; 0 before. So for the other two."""
    first_step: float = 0.0
    """Unix seconds at which its first step of this incarnation ended."""
    ended: float = 0.0
    """Unix seconds at which its process ended."""
    finished: float = 0.0
    """Unix seconds at which its main program was over; 0 before."""
    asked: bool = False
    """Its pod or its launcher was told to go before it ended: one that saves its state may end with 0."""


@dataclass(frozen=True, slots=True)
class CommitView:
    """A generation that stands at a tier."""

    incarnation: int
    step: int
    time: float = 0.0
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class SlowView:
    """Something that makes a job slow, as the detector found it (guard/causes.py)."""

    cause: str
    place: str
    ranks: tuple[int, ...] = ()
    """The culprits; empty when nobody is accused."""
    nodes: tuple[str, ...] = ()
    since: int = 0
    """Step."""
    slowdown: float = 0.0
    """0.4: takes 40 % longer than its peers."""
    lost: float = 0.0
    """Of the job's time, the share that it costs at most, 0 to 1."""
    persistent: bool = False


@dataclass(frozen=True, slots=True)
class GuardView:
    """What the telemetry of an incarnation's ranks shows."""

    incarnation: int
    judged: bool
    """Whether enough ranks do the same work to tell who of them is slow."""
    slow: tuple[SlowView, ...] = ()
    canary_missed: bool = False
    """Whether a rank that was made up to be slow was not found: what is not told says nothing."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One pod as its agent reported it."""

    pod_uid: str
    node: str
    launcher_connected: bool
    """Not so where nothing is heard of its agent either."""
    incarnation: int = 0
    master_port: int = 0
    port_incarnation: int = 0
    ranks: tuple[RankView, ...] = ()
    agent_away: bool = False
    """Nothing is heard of its agent: this is the last that it told."""
    stepped: float = 0.0
    """Unix seconds, by the operator's clock, at which a step of its ranks was last seen to be over."""
    committed: Mapping[str, CommitView] = field(default_factory=dict)
    """By tier, the newest generation that its agent saw committed."""
    troubles: tuple[tuple[str, str], ...] = ()
    """With checkpoints: each kind, as Trouble of hub.proto has them, and what is said of it."""
    interval_seconds: int = 0
    """Between two saves, as its agent was last told; 0: what the pod began with."""
    slot_token_valid: bool = True
    """Whether other agents believe what its agent shows to say that the slot is its node's."""
