"""What the agent says of its own accord on the rank's link: that this incarnation is over."""

from __future__ import annotations

from collections.abc import Callable

from convoy_workloads.runtime.frames import Message


class Told:
    """Of one rank."""

    def __init__(self) -> None:
        self.stale = False
        """A later incarnation of the job exists: this rank must leave."""

    def connect(self, send: Callable[[Message], None]) -> None:
        """Nothing is said on this link: the agent hears of saves on the line to its memory."""

    def on_message(self, message: Message) -> None:
        """Takes a message."""
        if message["type"] == "refused":
            self.stale = True

    def pending(self) -> list[Message]:
        """Nothing has to be said again: the agent asks for what it needs."""
        return []
