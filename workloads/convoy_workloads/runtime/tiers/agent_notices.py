"""Messages that the agent sends on the rank's link without a request of the rank."""

from __future__ import annotations

from collections.abc import Callable

from convoy_workloads.runtime.frames import Message


class AgentNotices:
    """The notices that one rank has received."""

    def __init__(self, on_trace: Callable[[Message], None] = lambda _: None) -> None:
        """`on_trace`: called with each message about steps to record, in the link's thread."""
        self.stale = False
        """True if a later incarnation of the job exists, so that this rank must end."""
        self._on_trace = on_trace

    def on_message(self, message: Message) -> None:
        """Record a message of the agent."""
        if message["type"] == "refused":
            self.stale = True
        elif message["type"] == "trace":
            self._on_trace(message)
