"""The agent's state of one pod, the events that change the state, and the outcome of an event (rules.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from convoy_agents.models.source import ModelState
from convoy_agents.pods.assignment import MAX_PROCESSES, Assignment
from convoy_agents.pods.messages import (
    LauncherHello,
    PortPicked,
    Progress,
    RankUpdate,
)
from convoy_agents.tracing.order import TraceResult
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_crds.terms import ROLE_ACTIVATOR


class Urgency(IntEnum):
    """The urgency of a pod's report to the hub."""

    NONE = 0
    BATCHED = 1
    """The report is due with the pod's next regular report. Regular reports are sent at most once a second.
    """
    NOW = 2


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank of the current incarnation."""

    update: RankUpdate
    progress: Progress | None = None
    loading_ms: int = 0
    """Unix milliseconds of the newest progress of loading the rank's model; 0 if it loads none."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest generation of a tier that this agent saw committed, and the Unix time of the commit in
    milliseconds.
    """

    generation: Generation
    time_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointTroubles:
    """Event: the list of problems with a pod's checkpoints has changed."""

    incarnation: int
    troubles: Mapping[str, str]
    """Messages about all current problems, by kind of problem (hub.proto Trouble.Kind)."""


@dataclass(frozen=True, slots=True)
class CheckpointUse:
    """Event: the ranks of a pod have requested memory for checkpoints, or a checkpoint."""

    incarnation: int
    wanted: int
    """Bytes that all ranks of the pod need for their buffers; 0 until all have requested them."""
    limit: int
    """Maximum bytes of the job on this node; 0 if only the node's memory limits the job."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Event: the pod's launcher must exit with `exit_code`."""

    exit_code: int
    reason: str
    immediate: bool = False
    """True if the launcher must kill the ranks without giving them time to save their state."""

    def frame(self) -> dict[str, Any]:
        """Return the `shutdown` frame for the launcher."""
        return {
            "type": "shutdown",
            "exitCode": self.exit_code,
            "reason": self.reason,
            "immediate": self.immediate,
        }


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
class GroupMembers:
    """Event: the hub reports the pods of the job's process group to an Independent pod."""

    incarnation: int
    """Incarnation of the process group."""
    members: tuple[MemberAddress, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the content of the pod's file."""
        return {"incarnation": self.incarnation, "members": [asdict(one) for one in self.members]}


@dataclass(frozen=True, slots=True)
class PodState:
    """The agent's state of one pod."""

    uid: str
    connected: bool = False
    """True while the launcher is connected."""
    launcher_incarnation: int = 0
    """The newest incarnation that the launcher knows."""
    assignment: Assignment | None = None
    port_wanted: int = 0
    """The newest incarnation for which the hub requested a rendezvous port (PickPort); 0 before the first
    request.
    """
    port_incarnation: int = 0
    master_port: int = 0
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    committed: Mapping[Tier, Committed] = field(default_factory=dict)
    """The newest committed generation by tier."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Messages about problems with this incarnation's checkpoints, by kind of problem."""
    memory_use: CheckpointUse | None = None
    """The ranks' use of the memory for checkpoints in this incarnation; None before they request anything."""
    shutdown: Shutdown | None = None
    model: ModelState | None = None
    """The state of the delivery of the pod's model; None before the hub has ordered one."""
    traces: Mapping[int, TraceResult] = field(default_factory=dict)
    """The traces of the assignment's order that are stored or have failed, by rank."""
    endpoints: tuple[str, ...] = ()
    """Addresses of replicas, for the ranks of an activator or of a replica with peers."""
    members: GroupMembers | None = None
    """The pods of the job's process group; None unless this is an Independent pod."""

    @property
    def endpoints_frame(self) -> dict[str, Any]:
        """Return the frame that reports the addresses of replicas to the ranks."""
        return {"type": "endpoints", "incarnation": self.current, "addresses": list(self.endpoints)}

    @property
    def trace_frame(self) -> dict[str, Any]:
        """Return the frame that tells the ranks which steps to record now, if any."""
        order = self.assignment.trace if self.assignment else None
        return {
            "type": "trace",
            "incarnation": self.current,
            "order": order.frame() if order else None,
        }

    @property
    def welcome_frame(self) -> dict[str, Any] | None:
        """Return the frame for a rank that connects; None if it needs none.

        An activator gets one without addresses too. A restart of the agent loses the addresses, and those
        that the activator has may belong to other pods by now. A replica keeps its peers until the hub sends
        them again: without peers it would promise less.
        """
        plan = self.assignment
        if self.endpoints or (plan is not None and plan.role == ROLE_ACTIVATOR):
            return self.endpoints_frame
        return self.trace_frame if plan is not None and plan.trace else None

    @property
    def current(self) -> int:
        """Return the incarnation whose ranks this agent serves."""
        return max(self.launcher_incarnation, self.assignment.incarnation if self.assignment else 0)

    @property
    def seen(self) -> int:
        """Return the latest incarnation that this agent has seen. The agent refuses commits of earlier
        incarnations.
        """
        return max(self.current, self.port_wanted)

    def rank_refusal(self, incarnation: int, rank: int) -> str:
        """Return the reason why a rank may not connect; an empty text if the rank may connect."""
        if incarnation != self.current:
            return f"incarnation {incarnation} is not the current one, {self.current}"
        if self.assignment and self.assignment.incarnation == self.current:
            if rank not in self.assignment.ranks:
                return f"rank {rank} does not belong to this pod"
        elif rank not in self.ranks and len(self.ranks) >= MAX_PROCESSES:
            return f"a pod may have at most {MAX_PROCESSES} ranks"
        return ""


@dataclass(frozen=True, slots=True)
class LauncherDisconnected:
    """Event: the launcher's connection ended."""


@dataclass(frozen=True, slots=True)
class PickPort:
    """Event: the hub requests that slot 0's launcher picks a rendezvous port for this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """Event: the agent of `node` has a new address."""

    node: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Event: the hub reports addresses of replicas to the ranks of an activator or of a replica."""

    incarnation: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankProgress:
    """Event: a rank reported its progress. `incarnation` and `rank` come from the hello of the rank's
    connection.
    """

    incarnation: int
    rank: int
    message: Progress


@dataclass(frozen=True, slots=True)
class RankLoading:
    """Event: a rank made progress in loading its model."""

    incarnation: int
    rank: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class CommitDecided:
    """Event: the commit of a generation at a tier was decided. `seen` is the latest incarnation that the
    coordinator knows.
    """

    tier: Tier
    generation: Generation
    verdict: Verdict
    seen: int
    time_ms: int


Event = (
    LauncherHello
    | LauncherDisconnected
    | PortPicked
    | RankUpdate
    | RankProgress
    | RankLoading
    | Assignment
    | PickPort
    | PeerMoved
    | Endpoints
    | GroupMembers
    | Shutdown
    | CommitDecided
    | CheckpointTroubles
    | CheckpointUse
    | ModelState
    | TraceResult
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an event: the next state, and the actions to perform in the order of the fields."""

    state: PodState
    save: bool = False
    """True if the next state must be written to the state file before any other action."""
    to_launcher: tuple[Mapping[str, Any], ...] = ()
    to_ranks: Mapping[str, Any] | None = None
    """A frame to send to every rank of the frame's incarnation; None if there is no frame to send."""
    urgency: Urgency = Urgency.NONE
    problem: str = ""
    """The sender's protocol error, after which its connection must be closed; empty without an error."""
