"""The read-only view of the hub for controllers (`convoy_controllers.reader.HubView`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from convoy_controllers.checkpoint.replica_state import job_of
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.faults import FaultState
from convoy_controllers.healthsweep.observed import NodeReport
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.traffic import Figures
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.views import AgentHardware, GuardView, NodeView, PodView, SlotView
from convoy_crds.checkpointstore import CheckpointStore
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.hub.agent_record import AgentRecord
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.faults import FaultOrders
from convoy_operator.hub.notices import NodeNotices
from convoy_operator.hub.slot_tokens import SlotTokenIssuer
from convoy_operator.hub.stores import CheckpointStores
from convoy_operator.hub.straggler_detectors import StragglerDetectors
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.hub.traffic import TrafficRecords


class HubReader:
    """Returns the reports of agents, and the hub's findings about nodes, jobs and stores. It changes
    nothing, except that it caches which slot tokens are valid.
    """

    def __init__(
        self,
        registry: AgentRegistry,
        monitor: AgentMonitor,
        detectors: StragglerDetectors,
        traffic: TrafficRecords,
        stores: CheckpointStores,
        sweeps: Sweeps,
        tokens: SlotTokenIssuer,
        faults: FaultOrders,
        notices: NodeNotices,
    ) -> None:
        self._registry = registry
        self._monitor = monitor
        self._detectors = detectors
        self._traffic = traffic
        self._stores = stores
        self._sweeps = sweeps
        self._tokens = tokens
        self._faults = faults
        self._notices = notices

    @property
    def silent_seconds(self) -> float:
        """Return the seconds of silence after which an agent counts as absent."""
        return self._monitor.liveness.silent_seconds

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """Return the newest report on each of these pods by the agent of its node, by pod uid."""
        found: dict[str, SlotView] = {}
        for pod in pods:
            record = self._registry.get(pod.node) if pod.node else None
            view = record.slots.get(pod.uid) if record else None
            if view is None:
                continue
            if view.launcher_connected and not self._monitor.connected(view.node):
                # The agent is silent, so its last report is out of date: do not report the launcher as
                # connected.
                view = replace(view, launcher_connected=False, agent_away=True)
            found[pod.uid] = view
        return found

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """Return the view of each node on which one of these pods runs, by node name."""
        return self._monitor.nodes(pods)

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes whose memory holds checkpoints of a job. Each node must have proved that it had
        a slot of the job.

        A node whose agent has been silent for too long is left out: it lost the checkpoints or cannot serve
        them.
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

    def states(self, job_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes that hold each state of a ServingJob's replicas, by uid of the state. Each node
        must have proved that it had a replica of the state's role and revision.
        """
        found: dict[str, list[str]] = {}
        for node, record in sorted(self._registry.items()):
            uids = [uid for uid in record.holdings if uid.startswith(job_uid) and job_of(uid) == job_uid]
            if not uids or self._monitor.silent(node):
                continue
            for uid in uids:
                if uid != job_uid and self._token_verified(node, record, uid):
                    found.setdefault(uid, []).append(node)
        return {uid: tuple(nodes) for uid, nodes in found.items()}

    def _token_verified(self, node: str, record: AgentRecord, job_uid: str) -> bool:
        """Return True if a node has proved that it had a slot of the job. Each token is verified once."""
        token = record.holdings[job_uid]
        known, holds = record.verified.get(job_uid, ("", False))
        if known != token:
            holds = self._tokens.holds(token, job_uid, node)
            record.verified[job_uid] = (token, holds)
        return holds

    def guard(self, job_uid: str) -> GuardView | None:
        """Return the straggler findings for a job; None before its ranks have reported a step."""
        return self._detectors.view(job_uid)

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """Return the hub's findings about a store; None if its Secret has not been read yet."""
        return self._stores.observed(store)

    def hardware(self, node: str) -> AgentHardware | None:
        """Return the hardware of a node; None if its agent has not reported it yet."""
        record = self._registry.get(node)
        if record is None or not record.hardware.known:
            return None
        return AgentHardware(record.hardware.driver, tuple(record.hardware.accelerators))

    def agent_connected(self, node: str) -> bool:
        """Return True if a node's agent was connected at the last poll of the AgentMonitor, or has sent a
        message since.
        """
        return self._monitor.connected(node)

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return the suspicions of jobs against each node, by node name. A suspicion is left out if the
        detector found no persistent slowness in the newest window of the suspecting job.
        """
        return self._detectors.suspicions()

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """Return slowness that may be the node's fault but does not prove a fault, such as slow input, by
        node name. Only persistent slowness is returned.
        """
        return self._detectors.noticed()

    def notices(self) -> Mapping[str, tuple[Notice, ...]]:
        """Return the agents' notices that hold at present, by node name. Notices of instances that have not
        joined have an empty node name.
        """
        return self._notices.notices()

    def notice_problems(self) -> Mapping[str, str]:
        """Return the reason why an agent does not read the metadata service of its node's SpotPool, by name
        of the node.
        """
        return self._notices.polls.problems()

    def traffic(self, pods: tuple[PodView, ...]) -> Figures | None:
        """Return the request figures of all these pods combined; None if no pod reports its requests."""
        return self._traffic.figures(pods)

    def loads(self, pods: tuple[PodView, ...]) -> Mapping[str, Load]:
        """Return the load of each of these pods that has reported it lately, by pod uid."""
        return self._traffic.loads(pods)

    def paces(self) -> Mapping[str, JobPace]:
        """Return the median step time of each job in its newest windows, by `namespace/name`."""
        return self._detectors.paces()

    def peer_address(self, node: str) -> str:
        """Return the newest reported address of a node's Peer service; empty if the agent never reported
        one.
        """
        return self._registry.peer_address(node)

    def faults(self, pods: tuple[PodView, ...]) -> Mapping[str, FaultState]:
        """Return the faults that were ordered for these pods and reported, by id of the fault."""
        return self._faults.states(pods)

    @property
    def sweeps(self) -> Callable[[str, str], NodeReport | None]:
        """Return a function (node, order) that returns the node's report on an order of a health sweep."""
        return self._sweeps.report
