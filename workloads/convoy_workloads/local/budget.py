"""How often a local run starts again: within its budget, and not for the same error over and over. Pure."""

from __future__ import annotations

from collections import deque

from convoy_crds.trainingjob import Recovery
from convoy_workloads.runtime.errors import PEER_LOST, PREEMPTED

SIGNALLED = 128
"""Exit codes from here on are signals: not the program's own word."""


class Budget:
    """Restarts of one run."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._times: deque[float] = deque()
        self._last: tuple[int, int] | None = None
        self._alike = 0

    def spend(self, now: float, code: int, step: int) -> str | None:
        """Takes one restart, at `now` seconds of any clock, after a rank ended with `code` behind `step`.

        Why there is none left; None when there is.
        """
        self._times.append(now)
        while now - self._times[0] > self._recovery.window_seconds:
            self._times.popleft()
        own = code < SIGNALLED and code not in (PREEMPTED, PEER_LOST)
        self._alike = (self._alike + 1 if (code, step) == self._last else 1) if own else 0
        self._last = (code, step)
        most = self._recovery.max_identical_errors
        if most and self._alike >= most:
            where = f"behind step {step}" if step else "before the first step"
            return (
                f"{self._alike} times in a row a rank ended with {code} {where} "
                f"(spec.recovery.maxIdenticalErrors={most})"
            )
        if len(self._times) > self._recovery.max_restarts:
            return f"more than spec.recovery.maxRestarts={self._recovery.max_restarts} restarts"
        return None
