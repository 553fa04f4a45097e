"""Tests of the metrics of recorded traces."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from convoy_crds.conditions import CONDITION_DOCS
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_trace import TraceState, TraceStatus
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics
from convoy_operator.recovery_meter import RecoveryMeter
from convoy_operator.trace_metrics import RESULTS, TraceMetrics


def status(recording: int, state: TraceState, reason: str = "", size: int = 0) -> dict[str, Any]:
    trace = TraceStatus(recording=recording, state=state, reason=reason, bytes=size)
    return {"trace": trace.to_dict()}


RUNS = status(1, TraceState.RECORDING, "TraceRecording", 7)
STORED = status(1, TraceState.STORED, "TraceStored", 30)
LARGE = status(2, TraceState.FAILED, "TraceTooLarge", 7)


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        (RUNS, STORED, ("TraceStored", 30)),
        ({}, STORED, ("TraceStored", 30)),
        (STORED, STORED, None),
        (STORED, {}, None),
        (STORED, LARGE, ("TraceTooLarge", 7)),
        ({}, RUNS, None),
        (RUNS, status(1, TraceState.FAILED, "x" * 30), None),
    ],
)
def test_each_recording_is_counted_once_with_its_bytes(
    before: dict[str, Any], after: dict[str, Any], counted: tuple[str, int] | None
) -> None:
    registry = CollectorRegistry()
    TraceMetrics(registry).count(before, after)
    found = {
        one: registry.get_sample_value("convoy_trace_recordings_total", {"result": one}) for one in RESULTS
    }
    assert {one: value for one, value in found.items() if value} == ({counted[0]: 1.0} if counted else {})
    assert registry.get_sample_value("convoy_trace_stored_bytes_total") == (counted[1] if counted else 0)


def test_every_reason_that_ends_a_recording_is_a_result() -> None:
    (doc,) = (one for one in CONDITION_DOCS if one.name == ConditionType.TRACE_RECORDED)
    others = {"TraceArmed", "TraceWaiting", "TraceRecording", "TraceStoreUnknown", "TraceStoreNotAllowed"}
    assert {one.name for one in doc.reasons} - others == set(RESULTS)


def test_stored_statuses_of_jobs_are_counted() -> None:
    cache, metrics = ClusterCache(), Metrics()
    RecoveryMeter(metrics, cache, lambda pods: {})
    for version, one in enumerate((RUNS, STORED, STORED, LARGE), start=1):
        meta = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
        cache.jobs.upsert(views.cached_object({"metadata": meta, "spec": {}, "status": one}))
    value = metrics.registry.get_sample_value
    assert value("convoy_trace_recordings_total", {"result": "TraceStored"}) == 1
    assert value("convoy_trace_recordings_total", {"result": "TraceTooLarge"}) == 1
    assert value("convoy_trace_stored_bytes_total") == 37
