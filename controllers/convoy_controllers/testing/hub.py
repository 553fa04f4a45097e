"""A hub whose agents report what the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.views import AgentHardware, GuardView, NodeView, SlotView


class FakeHub:
    """Reports of agents, as the test has them; none at first. Every agent is heard."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.silent_seconds = SILENT_SECONDS
        self.held: dict[str, tuple[Suspicion, ...]] = {}
        self.seen: dict[str, tuple[Suspicion, ...]] = {}
        self.pace: dict[str, JobPace] = {}
        self.found: dict[str, Any] = {}
        """By name, what is known of a CheckpointStore."""

    def slots(self, pods: Any) -> Mapping[str, SlotView]:
        """Return the reports of no agent."""
        return {}

    def nodes(self, pods: Any) -> Mapping[str, NodeView]:
        """Return no node."""
        return {}

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return no node."""
        return ()

    def guard(self, job_uid: str) -> GuardView | None:
        """Return what nobody reported."""
        return None

    def store(self, store: Any) -> Any:
        """Return what the test says of a store."""
        return self.found.get(store.metadata.name)

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node that is not silent."""
        return None if node in self.silent else AgentHardware()

    def agent_connected(self, node: str) -> bool:
        """Return True for a node that is not silent."""
        return node not in self.silent

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return what jobs hold against nodes."""
        return self.held

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return what jobs see of nodes."""
        return self.seen

    def paces(self) -> Mapping[str, JobPace]:
        """Return how fast jobs are."""
        return self.pace

    def peer_address(self, node: str) -> str:
        """Return an address for every node."""
        return f"{node}:1"

    @property
    def sweeps(self) -> Callable[[str, str], Any]:
        """The reports on orders: none."""
        return lambda node, order: None
