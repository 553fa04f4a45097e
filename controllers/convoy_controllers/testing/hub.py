"""A fake hub whose reports a test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.views import AgentHardware, GuardView, NodeView, SlotView


class FakeHub:
    """A hub without reports. Every agent is connected unless it is in `silent`."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.silent_seconds = SILENT_SECONDS
        self.held: dict[str, tuple[Suspicion, ...]] = {}
        self.seen: dict[str, tuple[Suspicion, ...]] = {}
        self.pace: dict[str, JobPace] = {}
        self.stores: dict[str, Any] = {}
        """Probe results of CheckpointStores, by name."""

    def slots(self, pods: Any) -> Mapping[str, SlotView]:
        """Return no reports."""
        return {}

    def nodes(self, pods: Any) -> Mapping[str, NodeView]:
        """Return no nodes."""
        return {}

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return no nodes."""
        return ()

    def guard(self, job_uid: str) -> GuardView | None:
        """Return no view."""
        return None

    def store(self, store: Any) -> Any:
        """Return the probe result that the test set."""
        return self.stores.get(store.metadata.name)

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node whose agent is connected."""
        return None if node in self.silent else AgentHardware()

    def agent_connected(self, node: str) -> bool:
        """Return True for a node whose agent is connected."""
        return node not in self.silent

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the suspicions of jobs against nodes."""
        return self.held

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the weaker suspicions of jobs against nodes."""
        return self.seen

    def paces(self) -> Mapping[str, JobPace]:
        """Return the speed of jobs."""
        return self.pace

    def peer_address(self, node: str) -> str:
        """Return an address for every node."""
        return f"{node}:1"

    @property
    def sweeps(self) -> Callable[[str, str], Any]:
        """A function that returns no report of any sweep order."""
        return lambda node, order: None
