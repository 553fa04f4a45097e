"""The engine odb: a language model over documents of different lengths, with online dynamic batching."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description=(
        "A small language model over documents of different lengths, with batches that are formed online "
        "under a token budget."
    ),
    role_kind="Training",
    family="workloads",
    example="odb.yaml",
    small={
        "steps": 20,
        "samples": 60,
        "token_budget": 96,
        "window": 8,
        "longest": 48,
        "mean_length": 16,
        "layers": 1,
        "width": 16,
        "heads": 2,
        "data_megabytes": 0.3,
    },
    metrics=(
        Metric("padding_ratio", "ratio", "Share of padding in all tokens of this rank's batches."),
        Metric("tokens_per_second", "tokens/s", "Tokens without padding that all ranks trained on."),
        Metric("micro_batches", "", "Batches of this rank so far."),
        Metric(
            "samples_per_step", "", "Mean number of samples, over all ranks, in an optimizer step so far."
        ),
        Metric("align_rounds", "", "Rounds in which the ranks agreed on their next batches."),
        Metric("split_total", "", "Groups that were split because another rank had more."),
        Metric("overflow_total", "", "Groups that were returned to the pool."),
        Metric("quarantined_total", "", "Samples of all ranks that were not used: empty or too long."),
        Metric("align_wait_seconds", "seconds", "Time that this rank waited for the others' messages."),
        Metric("held_out_loss", "nats", "Mean loss per byte on documents that the model never trains on."),
    ),
    paper="[Online Dynamic Batching with Formal Guarantees for LLM Training](https://arxiv.org/abs/2606.19989)",
)
