"""What a decision is made of: the plan of one reconcile, in plain data.

`plan(observed, now) -> Plan` of every kind returns this; the operator performs it in the order of the fields:
status first where an incarnation rises, children, events, commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_crds.terms import Reason


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the parent."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Deletes one pod, and only the incarnation of it that was seen."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """None leaves the pod's own grace period."""


@dataclass(frozen=True, slots=True)
class PickPort:
    """Asks the launcher of slot 0 for the rendezvous port of an incarnation."""

    node: str
    pod_uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of an incarnation, as every agent of the job is told of it."""

    slot: int
    pod_uid: str
    node: str
    processes: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Starts the ranks of one slot in an incarnation. Safe to repeat."""

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


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Ends a launcher, and with it its pod."""

    node: str
    pod_uid: str
    exit_code: int
    reason: str


Command = PickPort | Assign | Shutdown


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconcile wants done."""

    status: Mapping[str, Any] | None = None
    """The whole status; None when it is as stored."""
    status_first: bool = False
    """True when children and commands must wait until the status is stored (a risen incarnation)."""
    create: tuple[Mapping[str, Any], ...] = ()
    """Pods, by plain POST."""
    delete: tuple[DeletePod, ...] = ()
    delete_parent: bool = False
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds until time alone would change the plan."""


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
    owner_uid: str | None = None
    scheduled: bool = False
    unschedulable: str = ""
    """The scheduler's message while it finds no node."""
    waiting_reason: str = ""
    """Reason of the first waiting container, such as ImagePullBackOff."""
    waiting_message: str = ""
    exit_code: int | None = None
    """Of the first container, once it terminated."""
    termination_reason: str = ""
    termination_message: str = ""
    image: str = ""


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
    held_out_loss: float | None = None
    time: float = 0.0
    """Unix seconds of the progress."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One pod as its agent reported it."""

    pod_uid: str
    node: str
    launcher_connected: bool
    incarnation: int = 0
    master_port: int = 0
    port_incarnation: int = 0
    ranks: tuple[RankView, ...] = ()
    committed_incarnation: int = 0
    committed_step: int = -1
    """-1 before the first commit."""
    committed_tier: str = ""
    committed_time: float = 0.0
