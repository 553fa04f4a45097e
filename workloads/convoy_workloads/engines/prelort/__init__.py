"""The engine prelort: federated training of LoRA adapters of different ranks, on `convoy.federated`."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Federated LoRA adapters whose ranks differ between clients, as prefixes of each other.",
    role_kind="Training",
    family="sklearn",
    example="prelort.yaml",
    small={"steps": 8, "local_steps": 2, "clients": [2, 4, 4], "ranks": [2, 4], "pretrain_steps": 30},
    metrics=(
        Metric("accuracy_smallest_rank", "ratio", "Share of right predictions with the smallest rank."),
        Metric("accuracy_largest_rank", "ratio", "Share of right predictions with the largest rank."),
        Metric("perplexity_largest_rank", help="Exponential of the held-out loss with the largest rank."),
        Metric("clients_ok", help="Clients of the round whose adapters the server has used."),
        Metric("contributors_largest_segment", help="Clients of the round that have the last segment."),
        Metric("stragglers_total", help="Clients that sent nothing usable in time, since the last start."),
        Metric("quarantined_total", help="Messages that the server could not use, since the last start."),
        Metric("lost_rounds_total", help="Rounds without a quorum, since the last start."),
        Metric("bytes_up_total", "bytes", "Messages of clients to the server, since the last start."),
        Metric("bytes_down_total", "bytes", "Adapters that the server has sent, since the last start."),
    ),
    paper="[PreLort](https://arxiv.org/abs/2606.15963)",
)
