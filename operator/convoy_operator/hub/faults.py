"""Sends the orders for faults to agents, and records the agents' reports.

All state is only in memory. On each new stream an agent repeats its reports on all faults that it remembers.
A report counts only for a pod that runs on the reporting node.
"""

from __future__ import annotations

import math

import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import FaultCommand, InjectFault
from convoy_controllers.faults import FaultPhase, FaultState
from convoy_controllers.keys import Key
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_FAULT_INJECTION
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.messages import MAX_NAME, seconds
from convoy_operator.pod_views import controller_uid

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 5.0
"""Seconds between resends of an order that its agent has not acknowledged."""
MAX_FAULTS = 64
"""Maximum number of recorded faults of one node. The oldest is dropped first."""
_WORDS = 512
_PHASES = {
    wire.FaultReport.INJECTED: FaultPhase.INJECTED,
    wire.FaultReport.UNDONE: FaultPhase.UNDONE,
    wire.FaultReport.REFUSED: FaultPhase.REFUSED,
}


class FaultOrders:
    """The orders for faults and their states. All methods must be called from the event loop."""

    def __init__(self, context: HubContext, registry: AgentRegistry) -> None:
        self._cache = context.cache
        self._queue = context.queue
        self._clock = context.clock
        self._registry = registry
        self._states: dict[str, dict[str, FaultState]] = {}
        """The newest state of each fault, by node and then by id."""
        self._sent: dict[tuple[str, str, str], float] = {}
        """Monotonic time in seconds when each order was sent, by node, type and id."""

    def send(self, command: FaultCommand) -> None:
        """Send an order to its node's agent. Skip it if the agent has acknowledged it, or if it was sent less
        than AGAIN_SECONDS ago.
        """
        known = self._states.get(command.node, {}).get(command.id)
        # A deleted experiment may have had a fault of the same name. It was one of another pod.
        phase = known.phase if known is not None and known.pod_uid == command.pod_uid else None
        injects = isinstance(command, InjectFault)
        if phase is FaultPhase.UNDONE or (injects and phase is FaultPhase.INJECTED):
            return
        now, key = self._clock(), (command.node, type(command).__name__, command.id)
        self._sent = {one: at for one, at in self._sent.items() if now - at < AGAIN_SECONDS}
        if key in self._sent:
            return
        if isinstance(command, InjectFault) and (why := self._refusal(command.node)):
            log.warning("fault refused", node=command.node, fault=command.id, why=why)
            refused = FaultState(
                command.id, command.pod_uid, command.kind.value, FaultPhase.REFUSED, message=why
            )
            self._sent[key] = now
            self._record(command.node, refused)
        elif self._registry.send(command.node, _message(command)):
            self._sent[key] = now

    def record_report(self, node: str, report: wire.FaultReport) -> None:
        """Record an agent's report on a fault, and queue the Experiment of the fault's pod."""
        phase = _PHASES.get(report.state)
        if phase is None or not report.id or len(report.id) > MAX_NAME or len(report.pod_uid) > MAX_NAME:
            return
        achieved = report.achieved if report.HasField("achieved") else None
        state = FaultState(
            report.id,
            report.pod_uid,
            report.kind[:MAX_NAME],
            phase,
            achieved if achieved is not None and math.isfinite(achieved) else None,
            report.message[:_WORDS],
            seconds(report.injected_unix_ms),
            seconds(report.undone_unix_ms),
        )
        self._record(node, state)

    def states(self, pods: tuple[PodView, ...]) -> dict[str, FaultState]:
        """Return the states of these pods' faults, by id of the fault."""
        places = {pod.uid: pod.node for pod in pods if pod.node}
        return {
            one.id: one
            for node in sorted(set(places.values()))
            for one in self._states.get(node, {}).values()
            if places.get(one.pod_uid) == node
        }

    def drop_node(self, node: str) -> None:
        """Drop the faults of a deleted node."""
        self._states.pop(node, None)

    def _refusal(self, node: str) -> str:
        known = self._cache.nodes.get("", node)
        if known is not None and known.labels.get(LABEL_FAULT_INJECTION) == "true":
            return ""
        return (
            f'node {node} has no label {LABEL_FAULT_INJECTION}: "true"; an administrator sets it on nodes '
            "where faults may be injected"
        )

    def _record(self, node: str, state: FaultState) -> None:
        states = self._states.setdefault(node, {})
        before = states.get(state.id)
        states[state.id] = state
        if len(states) > MAX_FAULTS:
            del states[next(one for one in states if one != state.id)]
        if before == state:
            return
        if before is None or before.phase is not state.phase:
            log.info(
                "fault changed its state",
                node=node,
                fault=state.id,
                state=state.phase.value,
                message=state.message,
            )
        self._wake(node, state.pod_uid)

    def _wake(self, node: str, pod_uid: str) -> None:
        """Queue the object that owns the job of a pod: the Experiment."""
        pod = self._cache.pods.by_uid(pod_uid)
        key = self._cache.job_key(pod) if pod is not None and pod.view.node == node else None
        job = self._cache.job_of(key) if key is not None else None
        if key is None or job is None:
            return
        uid = controller_uid(job.raw)
        for kind, store in self._cache.kinds.items():
            owner = store.by_uid(uid) if uid else None
            if owner is not None:
                self._queue.add(Key(kind, owner.namespace, owner.name))


def _message(command: FaultCommand) -> wire.HubMessage:
    if not isinstance(command, InjectFault):
        return wire.HubMessage(undo_fault=wire.UndoFault(id=command.id, pod_uid=command.pod_uid))
    order = wire.InjectFault(
        id=command.id,
        pod_uid=command.pod_uid,
        owner_uid=command.owner_uid,
        job_uids=command.job_uids,
        kind=command.kind.value,
        magnitude=command.magnitude,
        seconds=command.seconds,
        rank=command.rank,
        volume=command.volume,
    )
    return wire.HubMessage(inject_fault=order)
