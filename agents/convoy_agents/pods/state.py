"""The agent's state of one pod, the events that change it, and their outcomes. rules.py decides."""

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
    """Urgency of a report to the hub."""

    NONE = 0
    BATCHED = 1
    """With the next regular report, at most once a second."""
    NOW = 2


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank of the current incarnation."""

    update: RankUpdate
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest generation that this agent saw committed, and the time (Unix milliseconds)."""

    generation: Generation
    time_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointTroubles:
    """The problems with a pod's checkpoints have changed."""

    incarnation: int
    troubles: Mapping[str, str]
    """All current messages by kind (hub.proto Trouble.Kind)."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The launcher must exit with `exit_code`."""

    exit_code: int
    reason: str
    immediate: bool = False
    """Kill the ranks without time to save their state."""

    def frame(self) -> dict[str, Any]:
        """Return the launcher's frame."""
        return {
            "type": "shutdown",
            "exitCode": self.exit_code,
            "reason": self.reason,
            "immediate": self.immediate,
        }


@dataclass(frozen=True, slots=True)
class PodState:
    """The agent's state of one pod."""

    uid: str
    connected: bool = False
    """True while the launcher is connected."""
    launcher_incarnation: int = 0
    """Newest incarnation that the launcher knows."""
    assignment: Assignment | None = None
    port_wanted: int = 0
    """Incarnation of the newest PickPort."""
    port_incarnation: int = 0
    master_port: int = 0
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    committed: Mapping[Tier, Committed] = field(default_factory=dict)
    """The newest committed generation of each tier."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Problems with this incarnation's checkpoints: messages by kind."""
    shutdown: Shutdown | None = None

    @property
    def current(self) -> int:
        """The incarnation whose ranks this agent serves."""
        return max(self.launcher_incarnation, self.assignment.incarnation if self.assignment else 0)

    @property
    def seen(self) -> int:
        """The latest incarnation this agent has seen. Commits of earlier ones are refused."""
        return max(self.current, self.port_wanted)

    def rank_refusal(self, incarnation: int, rank: int) -> str:
        """Return the reason why a rank may not connect; empty if it may."""
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
    """The launcher's connection ended."""


@dataclass(frozen=True, slots=True)
class PickPort:
    """The hub requests a rendezvous port for this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """A node's agent has a new address."""

    node: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class RankProgress:
    """A rank reported its progress. Incarnation and rank come from its connection's hello."""

    incarnation: int
    rank: int
    message: Progress


@dataclass(frozen=True, slots=True)
class CommitDecided:
    """The commit of a generation at a tier was decided. `seen` is the incarnation that made it stale."""

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
    """The next state and the actions to perform, in the order of the fields."""

    state: PodState
    save: bool = False
    """Write the new state to the state file before any other action."""
    to_launcher: tuple[Mapping[str, Any], ...] = ()
    to_ranks: Mapping[str, Any] | None = None
    """A frame for every rank of the frame's incarnation."""
    urgency: Urgency = Urgency.NONE
    problem: str = ""
    """The sender's protocol error; its connection must be closed."""
