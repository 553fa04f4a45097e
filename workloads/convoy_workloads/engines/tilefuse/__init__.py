"""The engine tilefuse: serves language models with weights of 4 or 8 bits."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Serves quantised language models with kernels for weights of 4 or 8 bits.",
    role_kind="Serving",
    family="serving",
    example="tilefuse.yaml",
    small={
        "context": 64,
        "layers": 1,
        "width": 32,
        "heads": 2,
        "kv_tokens": 1024,
        "quant": {"group_size": 32},
    },
    paper="[TileFuse](https://arxiv.org/abs/2606.11357)",
)
