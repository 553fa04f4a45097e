"""What the hub writes to one stream of an agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from convoy_agents.wire import hub_pb2 as wire

_REPEAT_SECONDS = 2.0
"""A command is recent again no sooner: while a job forms, every pod that joins is a reason to look at it."""
_MOST_COMMANDS = 4096
"""Commands that may wait for one agent; a plan repeats what is dropped."""


@dataclass(slots=True, eq=False)
class Stream:
    """One stream of one agent, as the hub writes to it."""

    node: str
    outbox: asyncio.Queue[wire.HubMessage] = field(
        default_factory=lambda: asyncio.Queue(_MOST_COMMANDS), repr=False
    )
    superseded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the same node's agent has dialled again."""
    recent: dict[tuple[str, ...], float] = field(default_factory=dict)
    """When commands of the last seconds were given to it, by kind, pod and what they say; oldest first."""

    def repeats(self, command: tuple[str, ...], now: float) -> bool:
        """Whether a command was given a moment ago; it counts as given now if it was not."""
        while self.recent and now - self.recent[oldest := next(iter(self.recent))] >= _REPEAT_SECONDS:
            del self.recent[oldest]
        if command in self.recent:
            return True
        self.recent[command] = now
        return False
