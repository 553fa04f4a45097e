"""The record of one node's agent: no more than a node may have, whatever its agent reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import slot_tokens
from convoy_controllers.views import SlotView
from convoy_operator.hub.messages import MOST_NAME, MOST_RANKS
from convoy_operator.hub.streams import Stream
from convoy_operator.limits import TokenBucket

MOST_PODS = 512
"""Pods that are remembered; kubelets run 110 by default, and no more than a few hundred."""
_MOST_RANKS = 4096
"""Ranks of all these pods, with the ends of what they wrote to stderr."""
_MOST_ACCELERATORS = 64
_MOST_PEERS = 64
"""Agents that it is known to ask for a pod's sake: slot 0's, and some that keep copies."""
_UNIT = 4096
UNITS_PER_SECOND, UNITS_AT_ONCE = 1000.0, 8192
"""Rate limit of its messages: each counts as one unit, and as one more for each `_UNIT` bytes. A pod of 64
ranks that flaps, with all that they wrote to stderr, is reported twenty times a second, which is 700.
"""
_WINDOWS = 4
"""Of steps, that count as one unit more. A node has some ranks, each of which tells of one a second."""
_PEERS = 8
"""Agents that are asked for a pod's sake, that count as one unit more."""


@dataclass(slots=True)
class AgentRecord:
    """One agent, as the hub knows it."""

    pace: TokenBucket
    stream: Stream | None = None
    peer_address: str = ""
    slots: dict[str, SlotView] = field(default_factory=dict)
    """By pod uid."""
    peers: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """By pod uid the nodes and addresses that are asked for its sake, as reported."""
    holdings: Mapping[str, str] = field(default_factory=dict)
    """By uid the slot tokens, as reported, of the jobs whose checkpoints its memory holds."""
    verified: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By uid, of these that were asked about, the slot token and whether it holds."""
    hardware: wire.Hardware = field(default_factory=wire.Hardware)
    over_limit: bool = False
    """More was reported on its stream than is remembered."""

    def join(self, stream: Stream, hello: wire.Hello) -> None:
        """Take over the stream of an agent that has dialled, and what its Hello reports of itself."""
        self.stream = stream
        self.over_limit = False
        self.peer_address = hello.peer_address[:MOST_NAME]
        self.hardware = wire.Hardware(
            known=hello.hardware.known,
            accelerators=[one[:MOST_NAME] for one in hello.hardware.accelerators[:_MOST_ACCELERATORS]],
            driver=hello.hardware.driver[:MOST_NAME],
        )

    def charge(self, message: wire.AgentMessage) -> None:
        """Count a message of the agent against its pace."""
        pods, reports = message.telemetry.pods, [message.pod, *message.hello.pods[:MOST_PODS]]
        windows = sum(len(pod.windows) for pod in pods[:MOST_PODS])
        peers = sum(min(len(pod.peers), _MOST_PEERS) for pod in reports)
        self.pace.reserve(1 + message.ByteSize() / _UNIT + (len(pods) + windows) / _WINDOWS + peers / _PEERS)

    def fits(self, report: wire.PodReport) -> bool:
        """Return whether a report is remembered beside the others."""
        others = [view for uid, view in self.slots.items() if uid != report.pod_uid]
        ranks = sum(len(view.ranks) for view in others) + min(len(report.ranks), MOST_RANKS)
        return len(others) < MOST_PODS and ranks <= _MOST_RANKS and len(report.pod_uid) <= MOST_NAME

    def store(self, report: wire.PodReport, view: SlotView) -> None:
        """Store a report that fits, and the view of it that plans are shown."""
        self.slots[report.pod_uid] = view
        self.peers[report.pod_uid] = tuple(
            (one.node[:MOST_NAME], one.peer_address[:MOST_NAME]) for one in report.peers[:_MOST_PEERS]
        )

    def record_holdings(self, report: wire.HeldJobs) -> None:
        """Record the jobs whose checkpoints its memory holds; it holds no others."""
        self.holdings = {
            one.job_uid[:MOST_NAME]: one.slot_token[: slot_tokens.MAX_CHARACTERS]
            for one in report.jobs[:MOST_PODS]
        }
        self.verified = {uid: one for uid, one in self.verified.items() if uid in self.holdings}
