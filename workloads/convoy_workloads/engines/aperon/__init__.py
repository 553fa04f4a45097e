"""The engine aperon: vector search by local tangent coordinates (HNTL)."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Searches vectors by local tangent coordinates, with filters, upserts and deletes.",
    role_kind="Serving",
    family="serving",
    example="aperon.yaml",
    small={"dimension": 8},
    replica_peers=True,
    paper="Aperon HNTL, arXiv [2606.08813](https://arxiv.org/abs/2606.08813)",
)
