"""The messages between a worker and the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from convoy_workloads.spot.ledger.request import Commit, Lease, Result


@dataclass(frozen=True, slots=True)
class Pull:
    """A worker that is free asks for leases."""

    capacity: int
    """Number of requests that it computes at a time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker saves the progress of its leases. The answer has the numbers of the leases that it keeps."""

    commits: tuple[tuple[Lease, Commit], ...]


@dataclass(frozen=True, slots=True)
class Surrender:
    """A worker gives leases back, with the progress so far, because it must stop."""

    commits: tuple[tuple[Lease, Commit | None], ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has finished requests."""

    results: tuple[tuple[Lease, Result], ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A worker asks for the weights of a version. The answer is a `Stored`, or None if they are gone."""

    version: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights in the object store."""

    reference: Any


Message = Pull | Progress | Surrender | Done | Weights


class Client(Protocol):
    """A worker's connection to the driver."""

    def call(self, message: Message, seconds: float) -> Any:
        """Return the driver's answer. Raises NoAnswer if there is none within `seconds`."""


class NoAnswer(Exception):
    """The driver does not respond. It may have received the message."""
