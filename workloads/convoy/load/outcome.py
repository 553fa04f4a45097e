"""The outcome of one request of a load. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of outcomes. Every scheduled request has exactly one."""

    OK = "ok"
    """The response is complete."""
    SHED = "shed"
    """The service has refused the request at once and says when to send it again (status 429, or 503 with
    Retry-After).
    """
    FAILED = "failed"
    """The service has responded with an error."""
    LOST = "lost"
    """There is no complete response: no connection, a broken connection, or no end in time."""
    UNSENT = "unsent"
    """The client has not sent the request, because too many others were in flight."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one request. Times are in seconds."""

    scheduled: float
    """Time at which the request should arrive, from the start of the load."""
    kind: Kind
    cause: str = ""
    """Reason of an outcome that is not OK, such as `status 500` or `connection refused`."""
    message: str = ""
    """First words of the service's error, if there are any."""
    delay: float = 0.0
    """Seconds by which the client sent the request too late."""
    first: float = 0.0
    """Time from the scheduled arrival to the first token; 0 for a request that is not OK."""
    total: float = 0.0
    """Time from the scheduled arrival to the end; 0 for a request that was not sent."""
    events: int = 0
    """Number of events with text in a streamed response."""


def refused(status: int, retry_after: str | None) -> bool:
    """Return True if a response means that the request was shed."""
    return status == 429 or (status == 503 and retry_after is not None)
