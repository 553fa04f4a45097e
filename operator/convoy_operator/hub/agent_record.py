"""The hub's record of one agent. Its size is bounded, whatever the agent reports."""

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
"""Maximum number of recorded pods per node. A kubelet runs 110 pods by default, and a few hundred at most."""
_MAX_RANKS = 4096
"""Maximum number of ranks recorded for a node, over all its pods. The record contains the end of each rank's
stderr.
"""
_MAX_ACCELERATORS = 64
_MAX_PEERS = 64
"""Maximum number of recorded peers per pod. The peers are slot 0's agent and the agents that keep copies of
the pod's checkpoints.
"""
_UNIT = 4096
UNITS_PER_SECOND, UNITS_AT_ONCE = 1000.0, 8192
"""Rate limit and burst of an agent's messages, in units. A message costs one unit, and one more for each
`_UNIT` bytes.

Example: a pod of 64 ranks flaps, and its agent sends twenty reports a second with the ranks' stderr. These
reports cost 700 units a second.
"""
_WINDOWS = 4
"""A message costs one more unit of the rate limit for each this many step windows, or pods with request
totals. The cost stays small, because a node has few ranks and each reports once per second.
"""
_PEERS = 8
"""Number of peers in a pod's report for which a message costs one more unit of the rate limit."""


@dataclass(slots=True)
class AgentRecord:
    """The newest data that one agent has reported, and the stream to the agent."""

    pace: TokenBucket
    stream: Stream | None = None
    peer_address: str = ""
    slots: dict[str, SlotView] = field(default_factory=dict)
    """The view of each pod's newest report, by pod uid."""
    peers: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """The reported peers of each pod, by pod uid. A peer is a pair of a node and the address of that node's
    agent. This agent reads the pod's commits from the peers.
    """
    holdings: Mapping[str, str] = field(default_factory=dict)
    """Reported slot tokens of the jobs whose checkpoints the node's memory holds, by job uid."""
    verified: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """For each job, by job uid: the slot token that the hub verified last, and True if the token is valid."""
    hardware: wire.Hardware = field(default_factory=wire.Hardware)
    over_limit: bool = False
    """True if the agent reported more pods or ranks on its current stream than the record may hold."""

    def join(self, stream: Stream, hello: wire.Hello) -> None:
        """Record the Hello and the new stream of an agent that has connected."""
        self.stream = stream
        self.over_limit = False
        self.peer_address = hello.peer_address[:MAX_NAME]
        self.hardware = wire.Hardware(
            known=hello.hardware.known,
            accelerators=[one[:MAX_NAME] for one in hello.hardware.accelerators[:_MAX_ACCELERATORS]],
            driver=hello.hardware.driver[:MAX_NAME],
        )

    def charge(self, message: wire.AgentMessage) -> None:
        """Charge a message to the agent's rate limit."""
        pods, reports = message.telemetry.pods, [message.pod, *message.hello.pods[:MAX_PODS]]
        windows = sum(len(pod.windows) for pod in pods[:MAX_PODS])
        peers = sum(min(len(pod.peers), _MAX_PEERS) for pod in reports)
        parts = len(pods) + windows + len(message.traffic.pods)
        self.pace.reserve(1 + message.ByteSize() / _UNIT + parts / _WINDOWS + peers / _PEERS)

    def fits(self, report: wire.PodReport) -> bool:
        """Return True if the record can store the report without exceeding the maximum number of pods or
        ranks.
        """
        others = [view for uid, view in self.slots.items() if uid != report.pod_uid]
        ranks = sum(len(view.ranks) for view in others) + min(len(report.ranks), MAX_RANKS)
        return len(others) < MAX_PODS and ranks <= _MAX_RANKS and len(report.pod_uid) <= MAX_NAME

    def store(self, report: wire.PodReport, view: SlotView) -> None:
        """Record a report that fits. `view` is the report in the form that plans use."""
        self.slots[report.pod_uid] = view
        self.peers[report.pod_uid] = tuple(
            (one.node[:MAX_NAME], one.peer_address[:MAX_NAME]) for one in report.peers[:_MAX_PEERS]
        )

    def record_holdings(self, report: wire.HeldJobs) -> None:
        """Record which jobs have checkpoints in the node's memory. The report replaces the previous one."""
        self.holdings = {
            one.job_uid[:MAX_NAME]: one.slot_token[: slot_tokens.MAX_CHARACTERS]
            for one in report.jobs[:MAX_PODS]
        }
        self.verified = {uid: one for uid, one in self.verified.items() if uid in self.holdings}
