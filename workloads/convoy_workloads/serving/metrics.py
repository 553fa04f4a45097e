"""The Prometheus metrics of a serving rank. The names follow those of vLLM, with the prefix `convoy_`."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from convoy_workloads.serving.traffic import Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUEUE_FULL = "queue_full"
"""Reason for which requests are refused, and for which they end if the engine has a queue for each model."""
LABELS = ("engine", "model", "job")
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_INTERVAL = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The metrics of one serving rank. Every thread may use them."""

    def __init__(self, engine: str, model: str, job: str) -> None:
        self.registry = CollectorRegistry()
        self.totals = Totals()
        """Totals that the rank reports to its agent."""
        values = (engine, model, job)
        self.values = values
        """Values of `LABELS`."""

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, LABELS, registry=self.registry).labels(*values)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _LATENCY) -> Histogram:
            found = Histogram(name, text, LABELS, registry=self.registry, buckets=buckets)
            return found.labels(*values)

        self._first = histogram(
            "convoy_time_to_first_token_seconds", "Time from a request's arrival to its first token."
        )
        self._next = histogram(
            "convoy_inter_token_latency_seconds", "Time between two tokens of a request.", _INTERVAL
        )
        self._whole = histogram(
            "convoy_e2e_request_latency_seconds", "Time from a request's arrival to its last token."
        )
        self._queue = histogram(
            "convoy_request_queue_time_seconds", "Time that a request waits for its admission to the batch."
        )
        self._prompt = counter("convoy_prompt_tokens", "Tokens of admitted prompts.")
        self._generation = counter("convoy_generation_tokens", "Generated tokens.")
        self._rows = counter("convoy_inference_rows", "Rows of tensors with computed outputs.")
        self._reused = counter(
            "convoy_prefix_cache_hit_tokens", "Tokens of prompts whose keys and values were in the cache."
        )
        ended = Counter(
            "convoy_request_success",
            "Ended requests by reason: stop, length, cancelled, deadline, invalid or error.",
            (*LABELS, "finished_reason"),
            registry=self.registry,
        )
        self._ended = {
            reason: ended.labels(*values, reason)
            for reason in ("stop", "length", "cancelled", "deadline", "invalid", "error")
        }
        refused = Counter(
            "convoy_requests_refused",
            "Refused requests by reason: queue_full, not_ready, invalid or unauthorized.",
            (*LABELS, "reason"),
            registry=self.registry,
        )
        self._refused = {
            reason: refused.labels(*values, reason)
            for reason in ("queue_full", "not_ready", "invalid", "unauthorized")
        }
        self._compute = counter("convoy_inference_compute_seconds", "Seconds that the compute loop has run.")

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, text, LABELS, registry=self.registry).labels(*self.values).set_function(read)

    def admitted(self, waited: float, tokens: int) -> None:
        """Record that a prompt was admitted after `waited` seconds."""
        self._queue.observe(waited)
        self._prompt.inc(tokens)

    def first_token(self, seconds: float) -> None:
        """Record the first token of a generation, `seconds` after the arrival."""
        self._first.observe(seconds)
        self._generation.inc()
        self.totals.first_token.observe(seconds)
        self.totals.tokens += 1

    def next_token(self, seconds: float) -> None:
        """Record a further token of a generation, `seconds` after the previous token."""
        self._next.observe(seconds)
        self._generation.inc()
        self.totals.tokens += 1

    def computed_rows(self, rows: int) -> None:
        """Record an inference on tensors with that many rows."""
        self._rows.inc(rows)
        self.totals.tokens += rows

    def ended(self, reason: str, seconds: float, reused: int) -> None:
        """Record the end of a work item. `reused`: tokens of its prompt that were in the cache. A full queue
        counts as a refusal.
        """
        if reason == QUEUE_FULL:
            self.refused(reason)
            return
        self._ended[reason].inc()
        self._whole.observe(seconds)
        self._reused.inc(reused)
        self.totals.ended(reason, seconds)

    def refused(self, reason: str) -> None:
        """Record that a request was refused."""
        self._refused[reason].inc()
        self.totals.refused += 1

    def computed(self, seconds: float) -> None:
        """Record that the compute loop has run for `seconds`."""
        self._compute.inc(seconds)
        self.totals.compute_seconds += seconds

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
