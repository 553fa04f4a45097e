"""The hub's side of one stream to an agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire

_REPEAT_SECONDS = 2.0
"""Seconds before the same command is sent again: while a job forms, every new pod triggers a plan."""
_MAX_COMMANDS = 4096
"""Maximum number of commands queued for one agent; a plan repeats a dropped command."""


@dataclass(slots=True, eq=False)
class Stream:
    """One stream to one agent, and the messages queued for it."""

    node: str
    outbox: asyncio.Queue[wire.HubMessage] = field(
        default_factory=lambda: asyncio.Queue(_MAX_COMMANDS), repr=False
    )
    superseded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the same node's agent has connected again."""
    recent: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Send times of the commands of the last seconds, by kind, pod and content; oldest first."""

    def repeats(self, command: tuple[str, ...], now: float) -> bool:
        """Return True if the same command was sent a moment ago; otherwise record it as sent."""
        while self.recent and now - self.recent[oldest := next(iter(self.recent))] >= _REPEAT_SECONDS:
            del self.recent[oldest]
        if command in self.recent:
            return True
        self.recent[command] = now
        return False
