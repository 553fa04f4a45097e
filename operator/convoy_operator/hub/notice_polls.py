"""Tracks which agents read the metadata service that the SpotPool of their node names.

An agent reports the result of its polls when the result changes. An agent that is not connected reads
nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from convoy_agents.wire import hub_pb2 as wire
from convoy_operator.hub.messages import MAX_NAME

LASTING_SECONDS = 180.0
"""Seconds for which a service must be unread before this counts as a problem. The first reply of Azure's
service takes up to two minutes, and agents restart."""
MAX_PROBLEM = 200
"""Maximum number of characters of a problem that an agent reports."""
NOT_CONNECTED = "no agent of the node is connected; see the chart's agent.tolerations and agent.nodeSelector"
NOT_REPORTED = "its agent reports no poll; update the agent if its version differs from the operator's"


@dataclass(frozen=True, slots=True)
class _Unread:
    """A metadata service that an agent should read but does not."""

    metadata: str
    since: float
    """Monotonic seconds at which this was first seen."""
    why: str


class NoticePolls:
    """The polls of all agents. All methods must be called from the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns monotonic seconds."""
        self._clock = clock
        self._reported: dict[str, tuple[str, str]] = {}
        """The metadata service that each agent polls, and its problem, by node."""
        self._unread: dict[str, _Unread] = {}

    def record(self, node: str, message: wire.Notices) -> None:
        """Record the state of an agent's polls. It replaces the earlier one."""
        if message.HasField("poll"):
            self._reported[node] = message.poll.metadata[:MAX_NAME], message.poll.problem[:MAX_PROBLEM]
        else:
            self._reported.pop(node, None)

    def drop_node(self, node: str) -> None:
        """Drop the state of a deleted node."""
        self._reported.pop(node, None)
        self._unread.pop(node, None)

    def update(self, expected: Mapping[str, str], connected: Collection[str]) -> None:
        """Find the agents that do not read the expected service. `expected`: the service, by node.
        `connected`: the nodes whose agents are connected.
        """
        now = self._clock()
        found: dict[str, _Unread] = {}
        for node, metadata in expected.items():
            why = self._problem(node, metadata) if node in connected else NOT_CONNECTED
            if why:
                before = self._unread.get(node)
                same = before is not None and before.metadata == metadata
                found[node] = _Unread(metadata, before.since if before is not None and same else now, why)
        self._unread = found

    def problems(self) -> dict[str, str]:
        """Return the reason why an agent does not read its service, by node. Only problems that last are
        returned.
        """
        oldest = self._clock() - LASTING_SECONDS
        return {node: one.why for node, one in self._unread.items() if one.since <= oldest}

    def _problem(self, node: str, metadata: str) -> str:
        """Return the problem of a connected agent; empty if it reads the service."""
        polled, problem = self._reported.get(node, ("", ""))
        return problem if polled == metadata else NOT_REPORTED
