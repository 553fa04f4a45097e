"""The record of one node's agent, bounded whatever the agent reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import slot_tokens
from convoy_controllers.views import SlotView
from convoy_operator.hub.messages import MAX_NAME, MAX_RANKS
from convoy_operator.hub.streams import Stream
from convoy_operator.limits import TokenBucket

MAX_PODS = 512
"""Maximum number of pods that are recorded. Kubelets run 110 by default, and at most a few hundred."""
_MAX_RANKS = 4096
"""Maximum number of ranks of all these pods, with the tails of their stderr."""
_MAX_ACCELERATORS = 64
_MAX_PEERS = 64
"""Maximum number of peers per pod that are recorded: slot 0's agent, and the agents that keep copies."""
_UNIT = 4096
UNITS_PER_SECOND, UNITS_AT_ONCE = 1000.0, 8192
"""Rate limit of an agent's messages in units: one per message, and one more for each `_UNIT` bytes.

A flapping pod of 64 ranks is reported twenty times a second with its stderr, which costs 700 units a second.
"""
_WINDOWS = 4
"""Step windows that cost one more unit. A node has a few ranks, and each reports one window per second."""
_PEERS = 8
"""Peers of a pod that cost one more unit."""


@dataclass(slots=True)
class AgentRecord:
    """The hub's record of one agent."""

    pace: TokenBucket
    stream: Stream | None = None
    peer_address: str = ""
    slots: dict[str, SlotView] = field(default_factory=dict)
    """Reported views by pod uid."""
    peers: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """By pod uid, the nodes and addresses of the agents that this agent asks for the pod's commits, as
    reported.
    """
    holdings: Mapping[str, str] = field(default_factory=dict)
    """By job uid, the reported slot tokens of the jobs whose checkpoints the node's memory holds."""
    verified: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By job uid, the slot token that was checked last, and True if it is valid."""
    hardware: wire.Hardware = field(default_factory=wire.Hardware)
    over_limit: bool = False
    """True if the current stream reported more than is recorded."""

    def join(self, stream: Stream, hello: wire.Hello) -> None:
        """Record the stream of an agent that connected, and its Hello."""
        self.stream = stream
        self.over_limit = False
        self.peer_address = hello.peer_address[:MAX_NAME]
        self.hardware = wire.Hardware(
            known=hello.hardware.known,
            accelerators=[one[:MAX_NAME] for one in hello.hardware.accelerators[:_MAX_ACCELERATORS]],
            driver=hello.hardware.driver[:MAX_NAME],
        )

    def charge(self, message: wire.AgentMessage) -> None:
        """Charge a message of the agent to its rate limit."""
        pods, reports = message.telemetry.pods, [message.pod, *message.hello.pods[:MAX_PODS]]
        windows = sum(len(pod.windows) for pod in pods[:MAX_PODS])
        peers = sum(min(len(pod.peers), _MAX_PEERS) for pod in reports)
        self.pace.reserve(1 + message.ByteSize() / _UNIT + (len(pods) + windows) / _WINDOWS + peers / _PEERS)

    def fits(self, report: wire.PodReport) -> bool:
        """Return True if a report fits into the record beside the others."""
        others = [view for uid, view in self.slots.items() if uid != report.pod_uid]
        ranks = sum(len(view.ranks) for view in others) + min(len(report.ranks), MAX_RANKS)
        return len(others) < MAX_PODS and ranks <= _MAX_RANKS and len(report.pod_uid) <= MAX_NAME

    def store(self, report: wire.PodReport, view: SlotView) -> None:
        """Store a report that fits, and its view for plans."""
        self.slots[report.pod_uid] = view
        self.peers[report.pod_uid] = tuple(
            (one.node[:MAX_NAME], one.peer_address[:MAX_NAME]) for one in report.peers[:_MAX_PEERS]
        )

    def record_holdings(self, report: wire.HeldJobs) -> None:
        """Record the jobs whose checkpoints the node's memory holds, in place of the earlier ones."""
        self.holdings = {
            one.job_uid[:MAX_NAME]: one.slot_token[: slot_tokens.MAX_CHARACTERS]
            for one in report.jobs[:MAX_PODS]
        }
        self.verified = {uid: one for uid, one in self.verified.items() if uid in self.holdings}
