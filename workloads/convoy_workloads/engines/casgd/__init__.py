"""The engine casgd: generalized linear models by communication-avoiding SGD, on `convoy.optim`."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Generalized linear models by SGD that merges the all-reduces of s iterations into one.",
    role_kind="Training",
    family="sklearn",
    example="casgd.yaml",
    small={"steps": 12, "iterations": 20, "s": 3, "data": "synth", "rows": 256, "features": 24},
    metrics=(
        Metric("collectives_total", help="All-reduces of the training since its start or its last restore."),
        Metric("comm_bytes_total", "bytes", "Bytes of the messages of these all-reduces."),
        Metric("comm_seconds", "seconds", "Time that rank 0 has waited for them."),
        Metric("gram_seconds", "seconds", "Time of rank 0 for its part of the Gram matrices."),
        Metric("chosen_s", help="Number of iterations for one all-reduce."),
        Metric("full_loss", "nats", "Mean loss over all training rows, without L2."),
    ),
    paper="[Mixed-Precision Communication-Avoiding SGD for Generalized Linear Models on GPUs]"
    "(https://arxiv.org/abs/2606.18463)",
)
