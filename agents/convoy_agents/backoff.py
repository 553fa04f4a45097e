"""Exponential back-off with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Computes the pauses between retries. Each pause is a random value between 50 and 100 % of an upper
    limit. This limit starts at `first` seconds and doubles with each retry, up to `cap` seconds.

    The jitter prevents the agents of a large cluster from reconnecting to a restarted hub at the same time.
    """

    first: float = 0.2
    cap: float = 5.0
    random: random.Random = field(default_factory=random.Random)
    _bound: float = 0.0

    def next(self) -> float:
        """Return the seconds to wait before the next retry."""
        self._bound = min(self.cap, self._bound * 2 or self.first)
        return self._bound * self.random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Set the upper limit back to `first` seconds. Call this after a success."""
        self._bound = 0.0
