"""What the agent says of its own accord on the rank's link: that this incarnation is over."""

from __future__ import annotations

from convoy_workloads.runtime.frames import Message


class AgentNotices:
    """Of one rank."""

    def __init__(self) -> None:
        self.stale = False
        """A later incarnation of the job exists: this rank must leave."""

    def on_message(self, message: Message) -> None:
        """Takes a message."""
        if message["type"] == "refused":
            self.stale = True
