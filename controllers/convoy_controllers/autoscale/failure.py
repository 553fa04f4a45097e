"""The failure to compute a number of replicas from a metric."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """A cause of the failure."""

    UNAVAILABLE = "Unavailable"
    """The metric has no value."""
    NO_PODS = "NoPods"
    NO_SAMPLES = "NoSamples"
    """No pod that is ready has a sample."""
    MISSING_REQUEST = "MissingRequest"
    """A container does not request the resource of a utilization."""
    NO_CONTAINER = "NoContainer"
    """A pod lacks the container that the metric names."""
    NO_REQUESTS = "NoRequests"
    """The requests of the sampled pods add up to 0."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a metric gives no number of replicas."""

    kind: FailureKind
    message: str
    """Text for users, without the name of the metric."""


class MetricError(Exception):
    """Raised if a metric gives no number of replicas."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)
