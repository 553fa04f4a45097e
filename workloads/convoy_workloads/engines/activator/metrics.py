"""The metrics of an activator. Names and meanings are those of the serving front."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from convoy_workloads.engines.activator.hold import Hold
from convoy_workloads.runtime.frames import Message
from convoy_workloads.serving.metrics import LABELS
from convoy_workloads.serving.traffic import Totals

REASONS = ("queue_full", "not_ready", "invalid", "unauthorized")
"""Reasons for which a request is refused at once."""
_WAITS = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)


class Metrics:
    """The metrics of one activator, and the totals that it reports to its agent.

    Replicas count the requests that they get from the activator. So the activator counts only requests that
    reach no replica, or whose replica fails.
    """

    def __init__(self, hold: Hold, job: str) -> None:
        self.totals = Totals()
        self._hold = hold
        self._registry = CollectorRegistry()
        values = ("activator", "activator", job)
        for name, text, read in (
            ("convoy_num_requests_waiting", "Requests that wait for a replica.", lambda: hold.waiting),
            ("convoy_num_requests_running", "Requests that a replica handles.", lambda: hold.proxied),
        ):
            Gauge(name, text, LABELS, registry=self._registry).labels(*values).set_function(read)
        self._waited = Histogram(
            "convoy_request_queue_time_seconds",
            "Time that a request waits for a replica.",
            LABELS,
            registry=self._registry,
            buckets=_WAITS,
        ).labels(*values)
        refused = Counter(
            "convoy_requests_refused",
            f"Refused requests by reason: {', '.join(REASONS)}.",
            (*LABELS, "reason"),
            registry=self._registry,
        )
        self._refused = {reason: refused.labels(*values, reason) for reason in REASONS}
        failed = Counter(
            "convoy_request_success",
            "Requests that ended without a replica's response by reason: cancelled, deadline or error.",
            (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        self._failed = {
            reason: failed.labels(*values, reason) for reason in ("cancelled", "deadline", "error")
        }

    def released(self, seconds: float) -> None:
        """Record that a replica got a request that had waited for `seconds`."""
        self._waited.observe(seconds)

    def refused(self, reason: str) -> None:
        """Record that a request was refused at once."""
        self._refused[reason].inc()
        self.totals.refused += 1

    def failed(self, reason: str, seconds: float) -> None:
        """Record that a request ended without a replica's response, `seconds` after its arrival."""
        self._failed[reason].inc()
        self.totals.ended(reason, seconds)

    def message(self) -> Message:
        """Return the message that reports the requests to the agent."""
        return self.totals.message(self._hold.waiting, self._hold.proxied)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
