"""The emulated time of a rank's links: when each operation is over, and the totals so far."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from convoy_workloads.comm.costs import Cost, Pair


class Pacer:
    """Delays operations to the speed of links. One operation uses the links after the other."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0
        """Time at which the links are free again."""
        self.seconds = 0.0
        """Seconds that all operations together take on the links."""
        self.operations = 0
        self.sent: Counter[Pair] = Counter()
        """Bytes that all operations have sent over each link."""

    def reserve(self, cost: Cost) -> float:
        """Account for an operation that starts now. Return the time at which it is over."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + cost.seconds
            self.seconds += cost.seconds
            self.operations += 1
            self.sent.update(cost.sent)
            return self._free_at

    def now(self) -> float:
        """Return the present time of the clock in seconds."""
        return self._clock()

    def wait_until(self, end: float) -> None:
        """Wait until the time `end`. Return at once if it is over."""
        left = end - self._clock()
        if left > 0:
            self._sleep(left)
