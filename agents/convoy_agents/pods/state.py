"""What an agent knows of one pod, what can happen to it, and what is then to be done; rules.py decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from convoy_agents.pods.assignment import MAX_PROCESSES, Assignment
from convoy_agents.pods.messages import (
    LauncherHello,
    PortPicked,
    Progress,
    RankUpdate,
)
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier


class Urgency(IntEnum):
    """How soon the hub is to hear of a change."""

    NONE = 0
    BATCHED = 1
    """With the next report, at most one a second."""
    NOW = 2


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank of the current incarnation."""

    update: RankUpdate
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest generation this agent saw committed, and when (Unix milliseconds)."""

    generation: Generation
    time_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointTroubles:
    """What keeps a pod's ranks from saving, or from going on where they were, is otherwise now."""

    incarnation: int
    troubles: Mapping[str, str]
    """All that is said, by kind, as Trouble of hub.proto has them."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The hub wants the launcher to end with `exit_code`."""

    exit_code: int
    reason: str
    immediate: bool = False
    """The ranks are killed, without time to save their state."""

    def frame(self) -> dict[str, Any]:
        """As the launcher is told."""
        return {
            "type": "shutdown",
            "exitCode": self.exit_code,
            "reason": self.reason,
            "immediate": self.immediate,
        }


@dataclass(frozen=True, slots=True)
class PodState:
    """Everything the agent knows of one pod."""

    uid: str
    connected: bool = False
    """Whether the launcher's connection is up."""
    launcher_incarnation: int = 0
    """Newest incarnation the launcher knows of."""
    assignment: Assignment | None = None
    port_wanted: int = 0
    """Incarnation of the newest PickPort."""
    port_incarnation: int = 0
    master_port: int = 0
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    committed: Mapping[Tier, Committed] = field(default_factory=dict)
    """The newest at each tier."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """With the checkpoints of this incarnation, by kind."""
    shutdown: Shutdown | None = None

    @property
    def current(self) -> int:
        """The incarnation whose ranks this agent listens to."""
        return max(self.launcher_incarnation, self.assignment.incarnation if self.assignment else 0)

    @property
    def seen(self) -> int:
        """The latest incarnation this agent has heard of; older ones are refused a commit."""
        return max(self.current, self.port_wanted)

    def rank_refusal(self, incarnation: int, rank: int) -> str:
        """Why a rank may not connect; empty when it may."""
        if incarnation != self.current:
            return f"incarnation {incarnation} is not the current {self.current}"
        if self.assignment and self.assignment.incarnation == self.current:
            if rank not in self.assignment.ranks:
                return f"rank {rank} is not one of this pod's"
        elif rank not in self.ranks and len(self.ranks) >= MAX_PROCESSES:
            return f"more than {MAX_PROCESSES} ranks"
        return ""


@dataclass(frozen=True, slots=True)
class LauncherDisconnected:
    """The launcher's connection ended."""


@dataclass(frozen=True, slots=True)
class PickPort:
    """The hub wants a rendezvous port for this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """A node's agent answers its peers at another address than the assignment says."""

    node: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class RankProgress:
    """A rank, known from its connection's hello, said how far it is."""

    incarnation: int
    rank: int
    message: Progress


@dataclass(frozen=True, slots=True)
class CommitDecided:
    """The commit of a generation at a tier ended; `seen` is the incarnation that made it stale."""

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
    | Assignment
    | PickPort
    | PeerMoved
    | Shutdown
    | CommitDecided
    | CheckpointTroubles
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The next state and what is to be done about it, in the order of the fields."""

    state: PodState
    save: bool = False
    """The state file must hold the new state before anybody is told."""
    to_launcher: tuple[Mapping[str, Any], ...] = ()
    to_ranks: Mapping[str, Any] | None = None
    """To every rank of the frame's incarnation."""
    urgency: Urgency = Urgency.NONE
    problem: str = ""
    """The message breaks the protocol: end its connection."""
