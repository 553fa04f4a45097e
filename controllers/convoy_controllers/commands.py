"""Commands to agents, and through them to launchers."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.healthsweep.observed import Order


@dataclass(frozen=True, slots=True)
class PickPort:
    """Asks the launcher of slot 0 to choose the rendezvous port of an incarnation."""

    node: str
    pod_uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of an incarnation, as the agents of the job need it."""

    slot: int
    pod_uid: str
    node: str
    processes: int


@dataclass(frozen=True, slots=True)
class StoreUse:
    """How a job uses a CheckpointStore: what to upload, what to keep, where to resume from."""

    name: str
    every_seconds: int
    """Seconds between two generations that are uploaded."""
    keep_last: int
    """Newest generations to keep."""
    keep_every_steps: int
    """Additionally keep the first generation at or after each multiple of this number of steps; 0 for none.
    """
    resume_uid: str = ""
    """Uid of the job in the same namespace whose stored state this job starts from; empty for none."""
    resume_step: int = 0
    """Step of that state; 0 for the newest."""


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """How the agent of a slot keeps the job's checkpoints in node memory."""

    copies: int
    limit: int
    """Bytes that the job may use on one node; 0 for all checkpoint memory of the node."""
    hosts: tuple[str, ...] = ()
    """Nodes that keep copies of the slot's shards."""
    holders: tuple[str, ...] = ()
    """For slot 0 only: nodes without a member that hold checkpoints of the job."""
    store: StoreUse | None = None
    interval_seconds: int = 0
    """For slot 0 only, whose rank 0 requests the saves: seconds between two saves. 0 keeps the interval
    that the pod started with.
    """


@dataclass(frozen=True, slots=True)
class Assign:
    """Starts the ranks of one slot in an incarnation.

    Safe to repeat: if the ranks run already, it only updates what the agent knows about the slot.
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
    """All members for slot 0, which coordinates commits, and for every slot under Strict fencing. Otherwise
    slot 0 only.
    """
    strict: bool = False
    """True under `Strict` fencing: the agent stops the ranks when it cannot reach anybody."""
    memory: MemoryTiers | None = None
    slots: int = 0
    """Number of pods of the incarnation."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Ends a launcher, and thereby its pod."""

    node: str
    pod_uid: str
    exit_code: int
    reason: str
    immediate: bool = False
    """True kills the ranks at once, without time to save their state."""


@dataclass(frozen=True, slots=True)
class CancelSweep:
    """Cancels the measurements of a node for a health sweep."""

    node: str
    name: str
    """Name of the order."""


JobCommand = PickPort | Assign | Shutdown
Command = JobCommand | Order | CancelSweep
