"""The metrics of traces that TrainingJobs record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_trace import TraceState

RESULTS = tuple(
    one.name
    for one in (
        Reasons.TRACE_STORED,
        Reasons.TRACE_RANKS_UNKNOWN,
        Reasons.TRACE_STEPS_PASSED,
        Reasons.TRACE_BEYOND_END,
        Reasons.TRACE_TOO_LARGE,
        Reasons.TRACE_NOT_STORED,
        Reasons.TRACE_NOT_RECORDED,
        Reasons.TRACE_MISSING,
        Reasons.TRACE_INTERRUPTED,
        Reasons.TRACE_JOB_ENDED,
    )
)
"""Reasons with which a recording ends."""
_OVER = frozenset({TraceState.STORED, TraceState.FAILED})


class TraceMetrics:
    """The metrics of the recordings of all TrainingJobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.recordings = Counter(
            "convoy_trace_recordings",
            "Recordings of traces that ended, by result: TraceStored, or the reason of the failure.",
            ["result"],
            registry=registry,
        )
        for result in RESULTS:
            self.recordings.labels(result)
        self.bytes = Counter(
            "convoy_trace_stored_bytes",
            "Bytes of the files that ended recordings have put into CheckpointStores.",
            registry=registry,
        )

    def count(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count the recording of a job that ended between two of its statuses."""
        known, ended = before.get("trace") or {}, after.get("trace") or {}
        if ended.get("state") not in _OVER or ended.get("reason") not in RESULTS:
            return
        if known.get("state") in _OVER and known.get("recording") == ended.get("recording"):
            return
        self.recordings.labels(ended["reason"]).inc()
        self.bytes.inc(max(0, ended.get("bytes", 0)))
