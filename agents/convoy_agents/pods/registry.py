"""The sessions of the pods on this node, by pod uid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog

from convoy_agents import metrics
from convoy_agents.models.source import ModelState
from convoy_agents.outbox import Outbox
from convoy_agents.pods import assignment
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.session import Hooks, PodSession
from convoy_agents.pods.state import (
    CheckpointTroubles,
    CheckpointUse,
    CommitDecided,
    Endpoints,
    GroupMembers,
    MemberAddress,
    PeerMoved,
    PickPort,
    PodState,
    Shutdown,
    Urgency,
)
from convoy_agents.tracing.order import TraceResult
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

MAX_ENDPOINTS = 64
"""Maximum number of replicas that the ranks of an activator learn of."""

MAX_MEMBERS = 256
"""Maximum number of pods of the process group that an Independent pod learns of."""

log = structlog.get_logger()


class Pods:
    """Opens and closes pod sessions, forwards the hub's commands to them, and schedules their reports."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.outbox = outbox
        self.wake = wake
        """Callback that the registry calls when the outbox has new entries."""
        self.on_removed: Callable[[str], None] = lambda uid: None
        """Callback that the registry calls with the uid of a pod that left the node."""
        self.on_opened: Callable[[str], None] = lambda uid: None
        """Callback that the registry calls with the uid of a pod that came to the node."""
        self._clock = clock
        self._sessions: dict[str, PodSession] = {}

    def __iter__(self) -> Iterator[PodState]:
        return iter([session.state for session in self._sessions.values()])

    def ranks(self, state: str) -> int:
        """Return the number of ranks on this node that are in the given state."""
        return sum(rank.update.state == state for pod in self for rank in pod.ranks.values())

    def get(self, uid: str) -> PodSession | None:
        """Return the session of a pod; None if the pod is not on this node."""
        return self._sessions.get(uid)

    def assignment(self, uid: str) -> assignment.Assignment | None:
        """Return a pod's assignment; None if the pod has no assignment or is not on this node."""
        session = self._sessions.get(uid)
        return session.state.assignment if session else None

    async def open(self, state: PodState, socket_path: Path, hooks: Hooks) -> None:
        """Listen on the pod's socket, unless the pod has a session already. Raises OSError if this fails."""
        if state.uid in self._sessions:
            return
        session = PodSession(state, socket_path, hooks)
        await session.open()
        self._sessions[state.uid] = session
        self.on_opened(state.uid)
        self._count()
        self.changed(state.uid, Urgency.NOW)

    async def close(self, uid: str) -> None:
        """Close the session of a pod that left the node, and schedule a message that reports the removal to
        the hub.
        """
        session = self._sessions.pop(uid, None)
        if session:
            await session.close()
            self.outbox.add_removed(uid)
            self.on_removed(uid)
            self.wake()
            self._count()

    async def close_all(self) -> None:
        """Close all sessions because the agent exits. The pods stay on the node."""
        for session in self._sessions.values():
            await session.close()

    def changed(self, uid: str, urgency: Urgency) -> None:
        """Schedule a report of a changed pod to the hub."""
        if urgency is Urgency.NONE or uid not in self._sessions:
            return
        if urgency is Urgency.NOW:
            self._count()
        self.outbox.put(uid, urgency, self._clock())
        self.wake()

    def report(self, uid: str) -> hub_pb2.PodReport | None:
        """Return a pod's current report; None if the pod left the node."""
        session = self._sessions.get(uid)
        return to_wire(session.state) if session else None

    def reports(self) -> list[hub_pb2.PodReport]:
        """Return the current reports of all pods."""
        return [to_wire(session.state) for session in self._sessions.values()]

    def command(self, message: hub_pb2.HubMessage) -> None:
        """Apply the hub's command to the pod that the command names. If the pod is not on this node, only
        count and log the command.
        """
        kind = message.WhichOneof("body")
        if kind not in metrics.OF_PODS:
            return
        body = getattr(message, kind)
        session = self._sessions.get(body.pod_uid)
        if session is None:
            metrics.COMMANDS.labels(kind, "unknown_pod").inc()
            log.warning("hub command for an unknown pod", kind=kind, pod_uid=body.pod_uid)
            return
        try:
            if kind == "assignment":
                session.dispatch(assignment.from_wire(body))
            elif kind == "pick_port":
                session.dispatch(PickPort(body.incarnation))
            elif kind == "peer_moved":
                session.dispatch(PeerMoved(body.node, body.peer_address))
            elif kind == "endpoints":
                session.dispatch(Endpoints(body.incarnation, tuple(body.addresses[:MAX_ENDPOINTS])))
            elif kind == "group_members":
                session.dispatch(_members(body))
            else:
                session.dispatch(Shutdown(body.exit_code, body.reason, body.immediate))
        except assignment.AssignmentError as error:
            metrics.COMMANDS.labels(kind, "invalid").inc()
            log.error("assignment refused", pod_uid=body.pod_uid, why=str(error))
            return
        except Exception:
            # A command that fails for one pod must not end the hub session, because all pods of the node
            # share the session.
            metrics.COMMANDS.labels(kind, "failed").inc()
            log.exception("command failed", kind=kind, pod_uid=body.pod_uid)
            return
        metrics.COMMANDS.labels(kind, "done").inc()

    def stop(self, uid: str, shutdown: Shutdown) -> None:
        """Shut down a pod's launcher without a command from the hub."""
        if session := self._sessions.get(uid):
            session.dispatch(shutdown)

    def set_troubles(self, uid: str, incarnation: int, troubles: Mapping[str, str]) -> None:
        """Replace the list of current problems with a pod's checkpoints. `troubles` has a message for each
        kind of problem.
        """
        if session := self._sessions.get(uid):
            session.dispatch(CheckpointTroubles(incarnation, troubles))

    def set_model(self, uid: str, state: ModelState) -> None:
        """Record the state of the delivery of a pod's model."""
        if session := self._sessions.get(uid):
            session.dispatch(state)

    def set_trace(self, uid: str, result: TraceResult) -> None:
        """Record that the trace of one of a pod's ranks is stored or has failed."""
        if session := self._sessions.get(uid):
            session.dispatch(result)

    def set_memory_use(self, uid: str, incarnation: int, wanted: int, limit: int) -> None:
        """Record the bytes that a pod's ranks need for checkpoints, and the limit of their job."""
        if session := self._sessions.get(uid):
            session.dispatch(CheckpointUse(incarnation, wanted, limit))

    def commit_decided(
        self, uid: str, tier: Tier, generation: Generation, verdict: Verdict, seen: int
    ) -> None:
        """Inform the pod's session of the verdict on a generation at a tier."""
        if session := self._sessions.get(uid):
            session.dispatch(CommitDecided(tier, generation, verdict, seen, int(time.time() * 1000)))

    def _count(self) -> None:
        metrics.PODS.set(len(self._sessions))
        metrics.LAUNCHERS.set(sum(session.state.connected for session in self._sessions.values()))


def _members(message: hub_pb2.GroupMembers) -> GroupMembers:
    found = (
        MemberAddress(one.role, one.replica, one.rank, one.processes, one.address)
        for one in message.members[:MAX_MEMBERS]
    )
    return GroupMembers(message.incarnation, tuple(found))
