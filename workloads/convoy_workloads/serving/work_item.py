"""The part of a request that the engine computes at once: a continuation of a prompt, or an inference on
tensors. Only the compute thread changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convoy_workloads.serving.protocol import Token

if TYPE_CHECKING:
    from convoy_workloads.serving.errors import RequestError
    from convoy_workloads.serving.metrics import Metrics

STOP = "stop"
"""Finish reason: the result is complete. The model has ended the text, or a stop string has occurred."""
LENGTH = "length"
"""Finish reason: the continuation has the maximum number of tokens."""
CANCELLED = "cancelled"
"""Finish reason: the client has left, or an administrator has cancelled the request."""
DEADLINE = "deadline"
"""Finish reason: the request's deadline has passed."""
ERROR = "error"
"""Finish reason: the engine has failed."""
INVALID = "invalid"
"""Finish reason: the engine has refused the request."""


@dataclass(slots=True)
class Delta:
    """The part of a result that one iteration has added."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    """The new tokens, if the request wants their probabilities."""
    finish: str = ""
    """Reason of the end; empty if the work item goes on."""
    message: str = ""
    """Cause of an end with the reason `ERROR` or `DEADLINE`."""
    generated: int = 0
    """Number of tokens so far. Only the last delta has it."""
    reused: int = 0
    """Number of tokens of the prompt that were in the cache. Only the last delta has it."""
    outputs: Mapping[str, Any] | None = None
    """The output tensors of an inference."""
    error: RequestError | None = None
    """The engine's error for this request alone."""


Sink = Callable[[int, Delta], None]
"""A function that receives the number of a part and its next delta, on the event loop."""


class WorkItem:
    """One part of a request. The engine receives its `payload`."""

    __slots__ = (
        "admitted_at",
        "choice",
        "deadline",
        "ended",
        "first_at",
        "last_at",
        "reused",
        "sink",
        "submitted_at",
    )

    def __init__(self, deadline: float, sink: tuple[int, Sink]) -> None:
        """`deadline`: monotonic time at which the item ends at the latest. `sink`: number of the part, and
        the function that receives its deltas.
        """
        self.deadline = deadline
        self.choice, self.sink = sink
        self.ended = False
        self.reused = 0
        """Number of tokens of the prompt that were in the cache."""
        self.submitted_at = self.admitted_at = self.first_at = self.last_at = 0.0
        """Monotonic times in seconds; 0 before the event."""

    @property
    def payload(self) -> Any:
        """Return the payload that the engine admits."""
        raise NotImplementedError

    @property
    def prompt_tokens(self) -> int:
        """Return the number of tokens of the prompt."""
        return 0

    def accept(self, result: Any) -> Delta | None:
        """Add a result of the engine. Return the delta to send, if there is one."""
        raise NotImplementedError

    def measure(self, metrics: Metrics, now: float) -> None:
        """Record the result that `accept` has added at the monotonic time `now`."""
        raise NotImplementedError

    def end(self, reason: str, message: str = "") -> Delta:
        """End the item. Return its last delta."""
        self.ended = True
        return Delta(finish=reason, message=message)
