"""The engine load: sends requests to a service on a schedule and measures the responses."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Sends requests to a service on a schedule, as `convoy load`, and measures the responses.",
    role_kind="Training",
    family="tools",
    example="load.yaml",
    small={"url": "http://127.0.0.1:9", "rate": 20, "seconds": 0.2},
    metrics=(
        Metric("requests_scheduled", help="Requests whose time has come."),
        Metric("requests_ok", help="Requests with a complete response."),
        Metric("requests_in_flight", help="Requests without an outcome yet."),
    ),
    tool=True,
)
