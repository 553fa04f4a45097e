"""Commands to agents, and through them to launchers."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.healthsweep.observed import Order
from convoy_controllers.views import ModelSource
from convoy_crds.perturbations import PerturbationKind


@dataclass(frozen=True, slots=True)
class PickPort:
    """Asks the launcher of slot 0 to choose the rendezvous port of an incarnation."""

    node: str
    pod_uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of an incarnation, with the facts that the job's agents need about it."""

    slot: int
    pod_uid: str
    node: str
    processes: int


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A job's use of a CheckpointStore: how often to upload, what to keep, and where to resume from."""

    name: str
    every_seconds: int
    """Seconds between two uploaded generations."""
    keep_last: int
    """Number of newest generations to keep in the store."""
    keep_every_steps: int
    """Number of steps; 0 for none. For each multiple of this number, the first generation at or after that
    step is kept as well.
    """
    resume_uid: str = ""
    """Uid of the job in the same namespace whose stored state this job starts from; empty for none."""
    resume_step: int = 0
    """Step of the stored state that this job starts from; 0 for the newest stored state."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The place of the Prometheus metrics of a pod's program."""

    address: str
    """The pod's IP."""
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """Settings by which the agent of a slot keeps the job's checkpoints in node memory."""

    copies: int
    limit: int
    """Bytes that the job may use on one node; 0 for all checkpoint memory of the node."""
    hosts: tuple[str, ...] = ()
    """Nodes that keep copies of the slot's shards."""
    holders: tuple[str, ...] = ()
    """Nodes that hold checkpoints of the job but run none of its pods. Only set for slot 0."""
    store: StoreUse | None = None
    interval_seconds: int = 0
    """Seconds between two saves; 0 keeps the interval that the pod started with. Only set for slot 0, whose
    rank 0 requests the saves.
    """
    by_default: bool = False
    """True if the job has no tiers in its spec. It then gets at most half of a node's memory, and gives way
    to other jobs.
    """


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Settings of the state that a replica of a ServingJob saves to the memory of nodes."""

    uid: str
    """Name of the state among agents (checkpoint/replica_state.py)."""
    limit: int
    """Bytes that all states of the job may use on one node; 0 for all checkpoint memory of the node."""
    hosts: tuple[str, ...] = ()
    """Nodes that keep copies of the state."""
    holders: tuple[str, ...] = ()
    """Other nodes with states of replicas of the same role and revision."""


@dataclass(frozen=True, slots=True)
class TraceOrder:
    """Steps of which ranks of a slot record a trace."""

    recording: int
    """Number of the recording."""
    attempt: int
    """Number of times that the recording has chosen other steps."""
    first: int
    count: int
    ranks: tuple[int, ...]
    """Global ranks of the slot that record."""
    store: str
    """CheckpointStore for the files."""
    max_bytes: int
    """Maximum bytes of the file of one rank."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Starts the ranks of one slot in an incarnation.

    The command may be repeated. If the ranks already run, the agent only updates its record of the slot.
    """

    node: str
    pod_uid: str
    job_uid: str
    job: str
    incarnation: int
    slot: int
    rank_offset: int
    processes: int
    world_size: int
    master_addr: str
    master_port: int
    hang_seconds: int
    role: str
    replica: int
    command: tuple[str, ...]
    members: tuple[Member, ...]
    """All members of the incarnation, if this is slot 0 (which coordinates commits) or fencing is Strict.
    Otherwise only the member of slot 0.
    """
    strict: bool = False
    """True under `Strict` fencing: the agent stops the ranks if it reaches neither the hub, nor the API
    server, nor a majority of the job's other agents.
    """
    memory: MemoryTiers | None = None
    slots: int = 0
    """Number of pods of the incarnation."""
    scrape: Scrape | None = None
    """The metrics that the agent must read; None if the program reports its requests itself, or has none."""
    replica_state: ReplicaState | None = None
    """The state of a ServingJob's replica, if this is slot 0 and the replica may save one."""
    trace: TraceOrder | None = None
    """The steps to record; None if no rank of the slot records."""
    key_uid: str = ""
    """Uid of the TrainingJob whose key the pod gets. All pods of the job have the same key, those of
    Independent roles too. Empty for no key.
    """


@dataclass(frozen=True, slots=True)
class DeliverModel:
    """Makes the agent of a node read a generation from its store, and put it into a pod's volume."""

    node: str
    pod_uid: str
    source: ModelSource

    @property
    def incarnation(self) -> int:
        """Return the incarnation of the generation."""
        return self.source.incarnation


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Reports the addresses of replicas to the ranks of a pod: the ready ones to an activator, and its peers
    to a replica.
    """

    node: str
    pod_uid: str
    incarnation: int
    addresses: tuple[str, ...]
    """`host:port` of each replica. A replica gets its own address first."""


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """The address of a pod of a job's process group."""

    role: str
    replica: int
    rank: int
    """Global rank of the pod's first rank."""
    processes: int
    address: str
    """The pod's IP."""


@dataclass(frozen=True, slots=True)
class ReportMembers:
    """Reports the pods of the process group to an Independent pod. A report replaces the previous one."""

    node: str
    pod_uid: str
    incarnation: int
    """Incarnation of the process group."""
    members: tuple[MemberAddress, ...]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Makes a launcher exit. The end of the launcher ends its pod."""

    node: str
    pod_uid: str
    exit_code: int
    reason: str
    immediate: bool = False
    """True to kill the ranks at once, without time to save their state."""


@dataclass(frozen=True, slots=True)
class CancelSweep:
    """Cancels the measurements of a node for a health sweep."""

    node: str
    name: str
    """Name of the sweep order to cancel."""


@dataclass(frozen=True, slots=True)
class InjectFault:
    """Makes the agent of a node inject a fault into a pod of an Experiment. A repeated command changes
    nothing.

    The hub sends it only to a node with the label `convoy.dev/fault-injection: "true"`. The agent checks the
    other rules, and undoes the fault by its own timer.
    """

    node: str
    pod_uid: str
    id: str
    """Name of the fault, unique among all faults of the pod: lower-case letters, digits, hyphens and
    dots, at most 100.
    """
    owner_uid: str
    """Uid of the pod's job."""
    job_uids: tuple[str, ...]
    """Uids of the Experiment's jobs that run, at most 64. The agent refuses a fault if its node runs a pod of
    another job.
    """
    kind: PerturbationKind
    magnitude: float
    seconds: float
    """Seconds until the agent undoes the fault by itself."""
    rank: int = 0
    """Number of the rank within the pod, for KillRank."""
    volume: str = ""
    """Name of the pod's volume that FullDisk fills; empty for the only one that is bounded."""


@dataclass(frozen=True, slots=True)
class UndoFault:
    """Makes the agent of a node undo a fault before its time."""

    node: str
    pod_uid: str
    id: str


JobCommand = PickPort | Assign | Shutdown | DeliverModel | Endpoints | ReportMembers
FaultCommand = InjectFault | UndoFault
Command = JobCommand | Order | CancelSweep | FaultCommand
