"""The life of a serving rank: it loads, serves, leaves its Service, refuses new requests, and ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """States of a serving rank, in the order in which a rank passes through them."""

    LOADING = "loading"
    SERVING = "serving"
    LEAVING = "leaving"
    """The pod is ending. Proxies may still send requests, so requests are accepted."""
    DRAINING = "draining"
    """New requests are refused. Requests in flight may finish."""
    ENDED = "ended"
    FAILED = "failed"
    """The engine has failed. The process ends, and the launcher starts it again."""


@dataclass
class Lifecycle:
    """The current state of a serving rank, and the reason for it."""

    state: State = State.LOADING
    reason: str = "the model is loading"

    @property
    def accepts(self) -> bool:
        """Return True if new requests are accepted."""
        return self.state in (State.SERVING, State.LEAVING)

    @property
    def ready(self) -> bool:
        """Return True if the rank wants new requests."""
        return self.state is State.SERVING

    @property
    def ending(self) -> bool:
        """Return True if the rank does not return to the state SERVING."""
        return self.state not in (State.LOADING, State.SERVING)

    def loading(self) -> None:
        """Record that the model is loaded again."""
        if not self.ending:
            self.state, self.reason = State.LOADING, "the model is loading"

    def serving(self) -> None:
        """Record that the model is loaded and the self-test has passed."""
        if not self.ending:
            self.state, self.reason = State.SERVING, ""

    def leave(self) -> None:
        """Record that the pod is ending."""
        if self.state is State.SERVING:
            self.state, self.reason = State.LEAVING, "this replica is ending"
        elif self.state is State.LOADING:
            self.state, self.reason = State.DRAINING, "this replica is ending"

    def drain(self) -> None:
        """Record that new requests are refused."""
        if self.state in (State.LOADING, State.SERVING, State.LEAVING):
            self.state, self.reason = State.DRAINING, "this replica is ending"

    def end(self) -> None:
        """Record that the process is about to end."""
        if self.state is not State.FAILED:
            self.state, self.reason = State.ENDED, "this replica has ended"

    def fail(self, reason: str) -> None:
        """Record that the engine has failed."""
        self.state, self.reason = State.FAILED, reason
