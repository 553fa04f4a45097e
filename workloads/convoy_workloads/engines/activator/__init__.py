"""The engine activator: holds requests while a ServingJob has no replica."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Holds requests while a ServingJob is scaled to zero, and passes them to its first replica.",
    role_kind="Serving",
    family="serving",
    example="scale-to-zero.yaml",
    small={"max_requests": 8},
    internal=True,
)
