"""The engine gpt: a small language model over bytes that is trained data-parallel. Users can try Convoy
with it.
"""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="A small decoder-only transformer over bytes of text, trained with DistributedDataParallel.",
    role_kind="Training",
    family="workloads",
    example="gpt.yaml",
    small={
        "steps": 24,
        "batch": 4,
        "context": 32,
        "layers": 1,
        "width": 32,
        "heads": 2,
        "data_megabytes": 0.3,
        "sample_bytes": 0,
    },
    metrics=(
        Metric("held_out_loss", "nats", "Mean loss per byte on files that the model never trains on."),
        Metric(
            "expert_imbalance",
            "ratio",
            "With experts: tokens of the busiest expert over the mean, in the worst block of rank 0.",
            always=False,
        ),
    ),
)
