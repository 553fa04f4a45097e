"""Tests of the account of a dead node: which requests failed, when, and what happened then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from e2e.bench.serving.dead_node import Timeline, account, add_failures
from e2e.drive.serving_jobs import failures_after

from convoy_workloads.bench.figures import Figures

REPORT: dict[str, Any] = {
    "startedAt": 1003.0,  # The process needs 3 s until it sends the first request.
    "failures": [
        {"atSeconds": 1.0, "outcome": "lost", "cause": "no end within 5 s"},
        {"atSeconds": 8.25, "outcome": "lost", "cause": "no end within 5 s"},
        {"atSeconds": 8.5, "outcome": "lost", "cause": "no end within 5 s"},
        {"atSeconds": 20.0, "outcome": "shed", "cause": "status 503"},
    ],
    "clientDelayMs": {"p99": 2.0, "max": 7.0},
    "scheduled": 100,
    "ok": 96,
    "shed": 1,
    "failed": 0,
    "lost": 2,
    "unsent": 0,
}
FAULT = 1010.0


def pod(name: str, *, ready: bool) -> Any:
    condition = SimpleNamespace(type="Ready", status=str(ready))
    return SimpleNamespace(
        metadata=SimpleNamespace(name=name, deletion_timestamp=None),
        spec=SimpleNamespace(node_name="node-2"),
        status=SimpleNamespace(conditions=[condition]),
    )


def test_failures_count_from_the_fault_and_not_from_the_start_of_the_process() -> None:
    found = failures_after(REPORT, FAULT)
    assert [(one.seconds, one.outcome) for one in found] == [(1.25, "lost"), (1.5, "lost"), (13.0, "shed")]


def test_account_has_changes_failures_and_events_in_their_order() -> None:
    timeline = Timeline(FAULT)
    for ready in (True, True, False):
        timeline.record_pods([pod("a", ready=ready)])
    timeline.record_pods([])
    assert [text for _, text in timeline.lines] == [
        "pod a on node-2: ready",
        "pod a on node-2: not ready",
        "pod a on node-2: gone",
    ]
    timeline.lines = [(5.0, "pod a on node-2: not ready")]
    lines = account(timeline, failures_after(REPORT, FAULT), REPORT, [(12.0, "Event NodeNotReady")])
    assert [line.strip() for line in lines] == [
        "1.00 s  2 x lost: no end within 5 s",
        "5.00 s  pod a on node-2: not ready",
        "12.00 s  Event NodeNotReady",
        "13.00 s  1 x shed: status 503",
        "the client sent requests late by 2.0 ms (p99) and 7.0 ms (maximum)",
    ]


def test_rows_have_the_last_failure_and_requests_without_an_outcome() -> None:
    found = Figures()
    add_failures(found, REPORT, failures_after(REPORT, FAULT))
    rows = [(row["metric"].split(": ")[1], row["value"], row["met"]) for row in found.rows()]
    assert rows == [
        ("the last request that failed had arrived after", 13.0, True),
        ("requests without a complete response", 4, None),
        ("requests without any outcome", 1, False),
    ]
