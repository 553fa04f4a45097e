"""Converts the agents' reports on traces to the plain data of plans."""

from __future__ import annotations

import math

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.views import TraceView

MAX_MESSAGE, MAX_DIGEST = 1024, 64
"""Maximum characters of a message and of a digest; the rest is cut off."""
MAX_COUNT = 2**53


def trace_view(report: wire.TraceReport) -> TraceView:
    """Return the report on a rank's trace in the form that plans use."""
    stored = report.state == wire.TraceReport.STORED
    known = report.failure in wire.TraceReport.Failure.values()
    # Map an unknown failure, which an agent of another version may report, to NOT_RECORDED.
    failure = wire.TraceReport.Failure.Name(report.failure) if known else "NOT_RECORDED"
    ratio = report.exposed_communication_ratio
    return TraceView(
        rank=report.rank,
        stored=stored,
        failure="" if stored else failure,
        message=report.message[:MAX_MESSAGE],
        bytes=min(report.bytes, MAX_COUNT),
        sha256=report.sha256[:MAX_DIGEST],
        nodes=min(report.nodes, MAX_COUNT),
        comm_bytes_per_step=min(report.comm_bytes_per_step, MAX_COUNT),
        exposed_communication_ratio=min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else 0.0,
    )
