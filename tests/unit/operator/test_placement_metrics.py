"""Tests of the metrics of placement."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from convoy_operator.placement_metrics import PlacementMetrics


def status(phase: str | None = "Running", scheduled: str = "True", **placement: Any) -> dict[str, Any]:
    condition = {"type": "Scheduled", "status": scheduled, "reason": "x"}
    return {"phase": phase, "conditions": [condition], "placement": {"gang": "Native", **placement}}


RACKS = {"keys": [{"key": "rack", "domains": 2}, {"key": "zone", "domains": 1}], "hops": 5}
CLAIM = {"job": "low", "namespace": "team", "role": "w", "replica": 3}


@pytest.mark.parametrize(
    ("statuses", "name", "labels", "value"),
    [
        ([status(), status("Pending", "False")], "convoy_gangs", ("Native", "waiting"), 1),
        ([status(), status("Pending", "False")], "convoy_gangs", ("Native", "placed"), 1),
        # An elastic job that runs with fewer pods does not wait for a gang.
        ([status("Running", "False")], "convoy_gangs", ("Native", "placed"), 1),
        ([status("Failed"), {"phase": "Pending"}], "convoy_gangs", ("Native", "placed"), 0),
        ([status(gang="None")], "convoy_gangs", ("None", "placed"), 1),
        ([status(queue={"name": "q", "state": "Waiting"})], "convoy_queued_jobs", ("Waiting",), 1),
        ([status(), {}], "convoy_queued_jobs", ("Waiting",), 0),
        ([status("Pending", claims=[CLAIM, CLAIM])], "convoy_claimed_pods", (), 2),
        ([status("Failed", claims=[CLAIM])], "convoy_claimed_pods", (), 0),
        ([status(**RACKS), status(**RACKS), status()], "convoy_ring_hops", (), 10),
        ([status(**RACKS), status("Pending", **RACKS)], "convoy_ring_domains", (), 2),
        ([status(advice={"skipped": "why"}), status()], "convoy_advised_jobs", ("skipped",), 1),
        ([status(advice={"places": [{}], "errorPercent": -4.0})], "convoy_advised_jobs", ("ranked",), 1),
        (
            [status(advice={"errorPercent": one}) for one in (-4.0, 8.0)],
            "convoy_forecast_error_ratio",
            (),
            0.06,
        ),
        ([status("Failed", advice={"errorPercent": 9.0})], "convoy_forecast_error_ratio", (), 0),
    ],
)
def test_gauges_follow_the_statuses(
    statuses: list[dict[str, Any]], name: str, labels: tuple[str, ...], value: float
) -> None:
    registry = CollectorRegistry()
    metrics = PlacementMetrics(registry)
    metrics.show([status("Pending", "False", claims=[CLAIM], **RACKS)] * 3)
    metrics.show(statuses)
    names = {"convoy_gangs": ("backend", "state"), "convoy_queued_jobs": ("state",)}
    names["convoy_advised_jobs"] = ("state",)
    assert registry.get_sample_value(
        name, dict(zip(names.get(name, ()), labels, strict=True))
    ) == pytest.approx(value)
