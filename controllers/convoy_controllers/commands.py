"""Commands to the agents of nodes and, through them, to launchers."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.healthsweep.observed import Order


@dataclass(frozen=True, slots=True)
class PickPort:
    """Asks the launcher of slot 0 for the rendezvous port of an incarnation."""

    node: str
    pod_uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of an incarnation, as agents of the job are told of it."""

    slot: int
    pod_uid: str
    node: str
    processes: int


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A CheckpointStore to which memory is uploaded, and what stays there."""

    name: str
    every_seconds: int
    """Between two generations that go there."""
    keep_last: int
    keep_every_steps: int
    """Besides, the first generation at or after each multiple of it; 0 for none."""
    resume_uid: str = ""
    """The job of the same namespace whose state there this one begins with; empty for none."""
    resume_step: int = 0
    """Which; 0 for the newest."""


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """What of a job its nodes keep in memory, as the agent of a slot is told."""

    copies: int
    limit: int
    """Bytes that the job may have on one node; 0 for what the node has."""
    hosts: tuple[str, ...] = ()
    """Nodes that keep the copies of the slot's shards."""
    holders: tuple[str, ...] = ()
    """For slot 0: nodes beside the members that hold checkpoints of the job."""
    store: StoreUse | None = None
    interval_seconds: int = 0
    """For slot 0, whose rank 0 wishes the saves: between two of them. 0: what the pod began with."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Starts the ranks of one slot in an incarnation. Safe to repeat: it changes what agents know of a slot
    whose ranks run, and starts nothing."""

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
    """All of the incarnation for slot 0, which coordinates commits, and under Strict; else slot 0 alone."""
    strict: bool = False
    """Fencing `Strict`: the agent stops the ranks when it is cut off from everybody."""
    memory: MemoryTiers | None = None
    slots: int = 0
    """Pods of the incarnation."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Ends a launcher, and with it its pod."""

    node: str
    pod_uid: str
    exit_code: int
    reason: str
    immediate: bool = False
    """Kills the ranks at once, without time to save their state."""


@dataclass(frozen=True, slots=True)
class CancelSweep:
    """Has a node end what it measures for a sweep."""

    node: str
    name: str
    """The order's name."""


JobCommand = PickPort | Assign | Shutdown
Command = JobCommand | Order | CancelSweep
