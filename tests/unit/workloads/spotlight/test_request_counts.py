"""The metrics that the engine reports: the counts of its ledger are among them, and all are declared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from convoy_workloads.engines.spotlight import ENGINE
from convoy_workloads.engines.spotlight.engine import metrics
from convoy_workloads.engines.spotlight.iteration import IterationReport
from convoy_workloads.engines.spotlight.request_counts import from_metrics, metric_name
from convoy_workloads.spot.ledger.request import Request, RequestKind
from convoy_workloads.spot.ledger.requests import RequestLedger


def test_each_report_has_the_counts_of_the_ledger() -> None:
    ledger = RequestLedger(30.0)
    ledger.plan([Request("job", 0, 0, seed, RequestKind.ROLLOUT, 0) for seed in range(3)])
    figures = {"idleRatio": 0.5, "cost": 2.0}
    run: Any = SimpleNamespace(
        ledger=ledger,
        figures=lambda: figures,
        held_out=lambda: 0.1,
        loop=SimpleNamespace(trained=0),
        workers=None,
    )
    found = metrics(run, IterationReport(0, 1.0, None, 0, 0, None, True, 0))
    assert from_metrics(found) == ledger.counts()
    assert [*found] == [one.name for one in ENGINE.metrics]
    assert metric_name("timedOut") == "requests_timed_out"


def test_metrics_without_requests_are_no_counts() -> None:
    assert from_metrics({"spend": 1.0, "requests_open": 2.0}) == {}
