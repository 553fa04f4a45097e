"""Rates and latencies of the links between ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link between two ranks."""

    bytes_per_second: float
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.bytes_per_second > 0:
            raise ValueError(f"bytes_per_second: {self.bytes_per_second} is not above 0")
        if not (0 <= self.latency_seconds < math.inf):
            raise ValueError(f"latency_seconds: {self.latency_seconds} is not 0 or more")

    def seconds(self, size: int) -> float:
        """Return the seconds that `size` bytes take."""
        return self.latency_seconds + size / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class Links:
    """The links between all ranks of a job."""

    default: Link
    pairs: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    """Links that differ from the default, by sending and receiving rank of the job."""

    def between(self, sender: int, receiver: int) -> Link:
        """Return the link from one rank to another."""
        return self.pairs.get((sender, receiver), self.default)
