"""Limits the restarts of a local run: the number of restarts, and how often the same error may occur in a
row. Pure.
"""

from __future__ import annotations

from collections import deque

from convoy_crds.trainingjob import Recovery
from convoy_workloads.runtime.errors import PEER_LOST, PREEMPTED

SIGNALLED = 128
"""Smallest exit code that means an end by a signal. The program itself chooses smaller exit codes."""


class RestartBudget:
    """Counts the restarts of one run and checks them against the limits in `spec.recovery`."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._times: deque[float] = deque()
        self._last: tuple[int, int] | None = None
        self._alike = 0

    def record_failure(self, now: float, code: int, step: int) -> str | None:
        """Record a restart at the time `now`, because a rank ended with exit code `code` after `step`.
        `now` is in seconds, of the same clock at each call.

        Return None if the restart is within the limits. Otherwise return the reason why it is not.
        """
        self._times.append(now)
        while now - self._times[0] > self._recovery.window_seconds:
            self._times.popleft()
        own = code < SIGNALLED and code not in (PREEMPTED, PEER_LOST)
        self._alike = (self._alike + 1 if (code, step) == self._last else 1) if own else 0
        self._last = (code, step)
        most = self._recovery.max_identical_errors
        if most and self._alike >= most:
            where = f"after step {step}" if step else "before the first step"
            return (
                f"{self._alike} times in a row a rank ended with exit code {code} {where} "
                f"(spec.recovery.maxIdenticalErrors={most})"
            )
        if len(self._times) > self._recovery.max_restarts:
            recovery = self._recovery
            return (
                f"more restarts within {recovery.window_seconds} s than "
                f"spec.recovery.maxRestarts={recovery.max_restarts} allows"
            )
        return None
