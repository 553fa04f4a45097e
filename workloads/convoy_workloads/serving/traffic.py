"""The totals of a serving rank's requests, and the messages in which the rank reports them to its agent."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.heartbeat import SILENT, STARTED, HeartbeatWriter
from convoy_workloads.runtime.link import RankLink
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext

BOUNDS = tuple(0.001 * 1.25**power for power in range(52))
"""Upper bounds of the latency buckets, from 1 ms to 87 s. The buckets are narrow enough for percentiles with
an error of at most 12 %.
"""
URGENT_SECONDS = 0.25
"""Minimum seconds between two urgent reports."""
_FAILED = frozenset({"error", "deadline"})
"""Reasons for which a request ends without a complete result that its client still waited for."""


class Latencies:
    """A histogram of latencies."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        """Add one latency."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    def message(self) -> dict[str, Any]:
        """Return the histogram as part of a message."""
        return {"bounds": BOUNDS, "counts": tuple(self.counts)}


class Totals:
    """The totals of a rank's requests since its start. Only one thread changes each of them."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.refused = 0
        self.tokens = 0
        self.compute_seconds = 0.0
        self.latency = Latencies()
        self.first_token = Latencies()

    def ended(self, reason: str, seconds: float) -> None:
        """Add a request that ended `seconds` after its arrival. The latency of a cancelled request is left
        out, because its client decided it.
        """
        self.requests += 1
        self.errors += reason in _FAILED
        if reason != "cancelled":
            self.latency.observe(seconds)

    def message(self, queue: int, in_flight: int) -> Message:
        """Return the `traffic` message with the present number of waiting and of running requests."""
        return {
            "type": "traffic",
            "queue": queue,
            "inFlight": in_flight,
            "requests": self.requests,
            "errors": self.errors,
            "refused": self.refused,
            "tokens": self.tokens,
            "computeSeconds": self.compute_seconds,
            "cpuSeconds": time.process_time(),
            "latency": self.latency.message(),
            "firstToken": self.first_token.message(),
        }


class Reporter:
    """Reports to the agent what a rank does: first the progress of loading its model, then its requests."""

    def __init__(
        self,
        context: RankContext,
        heartbeat: HeartbeatWriter,
        on_message: Callable[[Message], None] = lambda _: None,
    ) -> None:
        """Connect to the agent, if there is one. `on_message` is called with each message of the agent, in a
        thread of its own.
        """
        self.traffic: Callable[[], Message | None] = lambda: None
        """Function that returns the message about requests. Only rank 0 of a replica has requests."""
        self._heartbeat = heartbeat
        self._failed = False
        self._urgent_at = -math.inf
        self._link: RankLink | None = None
        if context.launched and context.socket:
            hello: Message = {
                "type": "hello",
                "role": "rank",
                "incarnation": context.incarnation,
                "rank": context.rank,
            }
            self._link = RankLink(context.socket, hello, on_message, self.message)

    def report_now(self) -> None:
        """Report without waiting for the next second, but at most every `URGENT_SECONDS`."""
        now = time.monotonic()
        if self._link is not None and now - self._urgent_at >= URGENT_SECONDS:
            self._urgent_at = now
            self._link.poll_soon()

    def message(self) -> Message | None:
        """Return the message to send now; None if there is nothing to report."""
        if self._heartbeat.state == SILENT:
            return None
        if self._heartbeat.state != STARTED:
            return self._traffic()
        ago = max(0.0, time.monotonic() - self._heartbeat.at)
        return {"type": "loading", "timeMs": int((time.time() - ago) * 1000)}

    def _traffic(self) -> Message | None:
        try:
            return self.traffic()
        except Exception as error:  # An engine's fault must not end the connection to the agent.
            if not self._failed:
                self._failed = True
                log_line(f"requests not reported: {type(error).__name__}: {error}")
            return None
