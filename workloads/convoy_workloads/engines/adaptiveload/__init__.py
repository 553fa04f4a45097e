"""The engine adaptiveload: a diffusion transformer over videos of different sizes, with balanced batches."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description=(
        "A small diffusion transformer over videos of different sizes, with batches that are sized and dealt "
        "by the measured time of a step."
    ),
    role_kind="Training",
    family="workloads",
    example="adaptiveload.yaml",
    paper=(
        "[AdaptiveLoad: Towards Efficient Video Diffusion Transformer Training](https://arxiv.org/abs/2605.17923)"
    ),
    # The exponent is given and the table stays, so that the batches do not depend on measured times.
    small={
        "steps": 20,
        "rule": "paper",
        "exponent": 1.5,
        "refit_steps": 0,
        "profile": False,
        "memory_tokens": 128,
        "buckets": [8, 16, 32, 64],
        "window": 24,
        "samples": 96,
        "channels": 4,
        "layers": 1,
        "width": 16,
        "heads": 2,
    },
    metrics=(
        Metric("imbalance_ratio", "ratio", "Share of their time that ranks wait for the slowest."),
        Metric(
            "samples_per_busy_second",
            "samples/s",
            "Samples of all ranks per second of the slowest rank of each step, since the last start.",
        ),
        Metric("fitted_p", "", "Exponent of the cost of a sample, at the middle bucket."),
        Metric("cost_mape", "ratio", "Mean relative error of the cost model."),
        Metric("table_version", "", "Version of the table of batch sizes."),
        Metric("batch_size_shortest", "", "Samples of a batch of the shortest bucket."),
        Metric("batch_size_longest", "", "Samples of a batch of the longest bucket."),
        Metric("peak_memory_bytes", "bytes", "Peak memory of rank 0: of its process, or of a GPU's tensors."),
    ),
)
