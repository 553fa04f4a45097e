"""The hub's side of one stream to an agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire

_REPEAT_SECONDS = 2.0
"""Seconds after which the same command may be sent again. While a job forms, every new pod triggers a plan
that repeats the commands.
"""
_MAX_COMMANDS = 4096
"""Maximum number of commands that are queued for one agent. The next plan repeats a command that was
dropped.
"""


@dataclass(slots=True, eq=False)
class Stream:
    """One stream to one agent, with the messages that are queued for the agent."""

    node: str
    outbox: asyncio.Queue[wire.HubMessage] = field(
        default_factory=lambda: asyncio.Queue(_MAX_COMMANDS), repr=False
    )
    superseded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the agent of the same node has opened a newer stream."""
    recent: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Monotonic time in seconds when each recent command was sent, in order of the times. The key is the
    command's kind, pod and content.
    """

    def repeats(self, command: tuple[str, ...], now: float) -> bool:
        """Return True if the same command was sent less than `_REPEAT_SECONDS` ago. Otherwise record it as
        sent.
        """
        while self.recent and now - self.recent[oldest := next(iter(self.recent))] >= _REPEAT_SECONDS:
            del self.recent[oldest]
        if command in self.recent:
            return True
        self.recent[command] = now
        return False
