"""The hub as plans see it (`convoy_controllers.reader.HubView`). Reading changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.healthsweep.observed import NodeReport
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.views import AgentHardware, GuardView, NodeView, PodView, SlotView
from convoy_crds.checkpointstore import CheckpointStore
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.hub.agent_record import AgentRecord
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.slot_tokens import SlotTokenIssuer
from convoy_operator.hub.stores import CheckpointStores
from convoy_operator.hub.straggler_detectors import StragglerDetectors
from convoy_operator.hub.sweeps import Sweeps


class HubReader:
    """The reports of agents, and what is known of their nodes."""

    def __init__(
        self,
        registry: AgentRegistry,
        monitor: AgentMonitor,
        detectors: StragglerDetectors,
        stores: CheckpointStores,
        sweeps: Sweeps,
        tokens: SlotTokenIssuer,
    ) -> None:
        self._registry = registry
        self._monitor = monitor
        self._detectors = detectors
        self._stores = stores
        self._sweeps = sweeps
        self._tokens = tokens

    @property
    def silent_seconds(self) -> float:
        """Silence after which an agent counts as absent."""
        return self._monitor.liveness.silent_seconds

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """Return, by pod uid, the reports on these pods by the agents of the nodes they are on."""
        found: dict[str, SlotView] = {}
        for pod in pods:
            record = self._registry.get(pod.node) if pod.node else None
            view = record.slots.get(pod.uid) if record else None
            if view is None:
                continue
            if view.launcher_connected and not self._monitor.connected(view.node):
                # The last report of an agent that fell silent.
                view = replace(view, launcher_connected=False, agent_away=True)
            found[pod.uid] = view
        return found

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """Return, by name, the nodes that these pods are on."""
        return self._monitor.nodes(pods)

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes whose memory holds checkpoints of a job, and which have had a slot of it.

        One that is silent for too long has lost them, or is cut off with them: nobody waits for it.
        """
        return tuple(
            sorted(
                node
                for node, record in self._registry.items()
                if job_uid in record.holdings
                and not self._monitor.silent(node)
                and self._token_verified(node, record, job_uid)
            )
        )

    def _token_verified(self, node: str, record: AgentRecord, job_uid: str) -> bool:
        """Return whether a node had a slot of a job that it holds something of; each token is read once."""
        token = record.holdings[job_uid]
        known, holds = record.verified.get(job_uid, ("", False))
        if known != token:
            holds = self._tokens.holds(token, job_uid, node)
            record.verified[job_uid] = (token, holds)
        return holds

    def guard(self, job_uid: str) -> GuardView | None:
        """Return what the telemetry of a job's ranks shows; None before they have reported a step."""
        return self._detectors.view(job_uid)

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """Return what was found out about a store; None when its Secret was not looked up."""
        return self._stores.observed(store)

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node; None before its agent has reported it."""
        record = self._registry.get(node)
        if record is None or not record.hardware.known:
            return None
        return AgentHardware(record.hardware.driver, tuple(record.hardware.accelerators))

    def agent_connected(self, node: str) -> bool:
        """Return whether a node's agent counts as present."""
        return self._monitor.connected(node)

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, what jobs hold against it."""
        return self._detectors.suspicions()

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return, by node, what jobs see of it that may lie in it and need not."""
        return self._detectors.noticed()

    def paces(self) -> Mapping[str, JobPace]:
        """Return, by job (namespace/name), how fast it is."""
        return self._detectors.paces()

    def peer_address(self, node: str) -> str:
        """Return the address of a node's Peer service; empty when its agent never reported one."""
        return self._registry.peer_address(node)

    @property
    def sweeps(self) -> Callable[[str, str], NodeReport | None]:
        """(node, order) -> the node's report on that order of a health sweep."""
        return self._sweeps.report
