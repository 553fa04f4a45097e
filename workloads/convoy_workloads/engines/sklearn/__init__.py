"""The engine sklearn: serves models of scikit-learn."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Serves pipelines of scikit-learn without pickles, and computes waiting requests together.",
    role_kind="Serving",
    family="sklearn",
    example="sklearn.yaml",
    small={"max_rows": 64},
)
