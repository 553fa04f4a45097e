"""A fake hub whose reports the test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy_controllers.faults import FaultState
from convoy_controllers.liveness.timings import SILENT_SECONDS
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.traffic import Figures
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.views import AgentHardware, GuardView, NodeView, SlotView


class FakeHub:
    """A hub without reports from pods. Agents are connected, except those of the nodes in `silent`."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.silent_seconds = SILENT_SECONDS
        self.held: dict[str, tuple[Suspicion, ...]] = {}
        self.seen: dict[str, tuple[Suspicion, ...]] = {}
        self.pace: dict[str, JobPace] = {}
        self.figures: Figures | None = None
        self.held_states: dict[str, tuple[str, ...]] = {}
        self.load: dict[str, Load] = {}
        self.stores: dict[str, Any] = {}
        """Probe results of CheckpointStores, by name."""
        self.given_notices: dict[str, tuple[Notice, ...]] = {}
        """Notices of agents, by name of the node."""
        self.given_problems: dict[str, str] = {}
        """Problems of agents with their metadata services, by name of the node."""
        self.fault_states: dict[str, FaultState] = {}

    def slots(self, pods: Any) -> Mapping[str, SlotView]:
        """Return an empty mapping: no agent reports a pod."""
        return {}

    def nodes(self, pods: Any) -> Mapping[str, NodeView]:
        """Return an empty mapping: this hub has no view of any node."""
        return {}

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return an empty tuple: no node has checkpoints of a job in memory."""
        return ()

    def states(self, job_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes that hold each state that the test has set."""
        return self.held_states

    def guard(self, job_uid: str) -> GuardView | None:
        """Return None: the guard knows nothing about a job."""
        return None

    def store(self, store: Any) -> Any:
        """Return the probe result that the test has set for a CheckpointStore, or None."""
        return self.stores.get(store.metadata.name)

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node; None if its agent is not connected."""
        return None if node in self.silent else AgentHardware()

    def agent_connected(self, node: str) -> bool:
        """Return True if the agent of a node is connected."""
        return node not in self.silent

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the suspicions of jobs against nodes that the test has set."""
        return self.held

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the weaker suspicions of jobs against nodes that the test has set."""
        return self.seen

    def notices(self) -> Mapping[str, tuple[Notice, ...]]:
        """Return the notices that the test has set."""
        return self.given_notices

    def notice_problems(self) -> Mapping[str, str]:
        """Return the problems that the test has set."""
        return self.given_problems

    def traffic(self, pods: Any) -> Figures | None:
        """Return the figures of requests that the test has set."""
        return self.figures

    def loads(self, pods: Any) -> Mapping[str, Load]:
        """Return the loads of pods that the test has set, by pod uid."""
        return self.load

    def paces(self) -> Mapping[str, JobPace]:
        """Return the speeds of jobs that the test has set."""
        return self.pace

    def peer_address(self, node: str) -> str:
        """Return the peer address of a node's agent. Every node has one."""
        return f"{node}:1"

    def faults(self, pods: Any) -> Mapping[str, FaultState]:
        """Return the states of faults that the test has set, by id."""
        return self.fault_states

    @property
    def sweeps(self) -> Callable[[str, str], Any]:
        """Function that returns the report of a node about a sweep order; here always None."""
        return lambda node, order: None
