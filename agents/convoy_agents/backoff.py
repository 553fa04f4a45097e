"""Growing, jittered pauses between tries."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Pauses between half and all of a bound that doubles from `first` to `cap` seconds.

    The jitter keeps the agents of a large cluster from dialling a returning hub in step.
    """

    first: float = 0.2
    cap: float = 5.0
    random: random.Random = field(default_factory=random.Random)
    _bound: float = 0.0

    def next(self) -> float:
        """Seconds to wait before the next try."""
        self._bound = min(self.cap, self._bound * 2 or self.first)
        return self._bound * self.random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Starts over at `first`: a try has succeeded."""
        self._bound = 0.0
