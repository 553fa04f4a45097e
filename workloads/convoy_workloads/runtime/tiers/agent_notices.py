"""Messages that the agent sends on the rank's link without a request of the rank."""

from __future__ import annotations

from convoy_workloads.runtime.frames import Message


class AgentNotices:
    """The notices that one rank has received."""

    def __init__(self) -> None:
        self.stale = False
        """True if a later incarnation of the job exists, so that this rank must end."""

    def on_message(self, message: Message) -> None:
        """Record a message of the agent."""
        if message["type"] == "refused":
            self.stale = True
