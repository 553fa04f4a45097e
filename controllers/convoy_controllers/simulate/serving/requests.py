"""Requests to a simulated ServingJob, and the count of their outcomes."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The end of a request, as its client sees it."""

    OK = "ok"
    SHED = "shed"
    """The replica's queue was full. The client is told to retry (429)."""
    FAILED = "failed"
    """The client got an error, or no connection."""
    LOST = "lost"
    """The replica died or lost its network while the request was there."""


class Cause(StrEnum):
    """The cause of a request's failure."""

    NONE = ""
    NO_ENDPOINT = "noEndpoint"
    """The Service had no ready replica."""
    REFUSED = "refused"
    """The replica refused the connection, because it was draining or its process had ended."""
    UNREACHABLE = "unreachable"
    """The replica's node did not respond."""
    DRAIN = "drain"
    """The request did not end within the replica's drain time."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A simulated request to a service."""

    at: float
    """Unix time in seconds at which the request arrived."""
    seconds: float
    """Seconds that its computation takes."""
    ended: Callable[[Request, Outcome, Cause], None]
    """Function that is called once, when the request ends."""


@dataclass(slots=True)
class RequestLog:
    """The outcomes of all requests to one job."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    causes: Counter[Cause] = field(default_factory=Counter)
    """Number of failed requests by cause."""
    seconds: array[float] = field(default_factory=lambda: array("d"))
    """Duration of each request that ended well, from its arrival."""
    failed_at: float = 0.0
    """Unix time in seconds at which the last request without a response arrived; 0 if there is none."""

    @property
    def total(self) -> int:
        """Return the number of requests that have ended."""
        return self.outcomes.total()

    def record(self, outcome: Outcome, cause: Cause, at: float, seconds: float) -> None:
        """Record the end of a request that arrived at the Unix time `at` and took `seconds`."""
        self.outcomes[outcome] += 1
        if outcome is Outcome.OK:
            self.seconds.append(seconds)
        elif outcome in (Outcome.FAILED, Outcome.LOST):
            self.failed_at = max(self.failed_at, at)
        if cause is not Cause.NONE:
            self.causes[cause] += 1

    def percentiles(self, *shares: float) -> list[float | None]:
        """Return for each share the duration within which this share of the good requests ended; None if
        there is no good request.
        """
        ordered = sorted(self.seconds)
        ranks = [max(0, math.ceil(share * len(ordered)) - 1) for share in shares]
        return [ordered[rank] if ordered else None for rank in ranks]
