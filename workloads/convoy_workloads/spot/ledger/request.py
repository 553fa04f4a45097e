"""A request for work of a spot worker: its identity, its states, its lease and its saved progress."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

ID_BYTES = 16
Payload = Mapping[str, Any]
"""JSON values and numpy arrays by name."""


class RequestKind(StrEnum):
    """Purpose of a request."""

    ROLLOUT = "Rollout"
    """A sample that the trainer trains on."""
    EXPLORE = "Explore"
    """A sample that rates a seed for the next iteration."""


class RequestState(StrEnum):
    """State of a request. The last three are endings; no request leaves them."""

    PLANNED = "Planned"
    LEASED = "Leased"
    DONE = "Done"
    """The result is here, and the trainer has not used it yet."""
    CONSUMED = "Consumed"
    EXPIRED = "Expired"
    """The weights of the result are too old, or no result came in time."""
    SUPERSEDED = "Superseded"
    """The planner does not need the result any more."""


OPEN = frozenset({RequestState.PLANNED, RequestState.LEASED, RequestState.DONE})
"""States of a request that has not ended."""
EVENTS = (
    "leased",
    "resumed",
    "committed",
    "surrendered",
    "timedOut",
    "revoked",
    "exhausted",
    "duplicates",
    "late",
    "unknown",
    "staleCommits",
    "staleResults",
)
"""Names of the counted events. `exhausted` requests expired without progress, `late` results came after the
end of their request, and `unknown` requests are not in the ledger, or no longer.
"""


class InvalidRequest(ValueError):
    """Raised for a request that cannot be planned."""


@dataclass(frozen=True)
class Request:
    """One request. Two requests with the same id are the same request."""

    job: str
    iteration: int
    prompt: int
    seed: int
    kind: RequestKind
    version: int
    """Version of the weights to compute with. Not part of the identity."""

    @cached_property
    def id(self) -> str:
        """Return the identity: a hash of job, iteration, prompt, seed and kind."""
        key = json.dumps([self.job, self.iteration, self.prompt, self.seed, self.kind])
        return hashlib.blake2b(key.encode(), digest_size=ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Commit:
    """The saved progress of a request."""

    version: int
    """Version of the weights that computed this progress."""
    step: int
    """Number of finished denoising steps."""
    state: Payload
    size: int = 0
    """Number of bytes of the state."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to compute a request until a deadline."""

    request: Request
    worker: str
    incarnation: int
    """Incarnation of the driver that granted the lease. Numbers of leases are unique within one."""
    number: int
    until: float
    """Unix time at which the lease times out, unless the worker renews it."""
    commit: Commit | None
    """Progress from which the worker resumes; None to start from the beginning."""

    def extended(self, until: float) -> Lease:
        """Return the lease with a later deadline; never with an earlier one."""
        return replace(self, until=max(self.until, until))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a request."""

    version: int
    """Version of the oldest weights that took part."""
    payload: Payload
