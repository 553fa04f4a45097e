"""The engine aperon-index: builds indexes for the engine aperon, and saves them as checkpoints."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Builds an index of vectors, once or again and again, and saves each as a checkpoint.",
    role_kind="Training",
    family="serving",
    example="aperon-index.yaml",
    small={"synthetic": {"rows": 200, "dimension": 8}, "generations": 2, "kernel": "twin"},
    metrics=(
        Metric("indexed_records", help="Records in the index, also while it is built."),
        Metric("index_bytes", "bytes", "Size of the index's files."),
        Metric("build_seconds", "seconds", "Time of the last build, with its tuning."),
        Metric(
            "build_recall",
            "ratio",
            "Recall on sampled records, with the settings of searches that the build has chosen.",
            always=False,
        ),
    ),
    tool=True,
)
