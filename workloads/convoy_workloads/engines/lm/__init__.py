"""The engine lm: serves the language models that gpt trains."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Serves models of gpt with continuous batching, a paged key-value cache and prefix reuse.",
    role_kind="Serving",
    family="serving",
    example="lm.yaml",
    small={"context": 64, "layers": 1, "width": 32, "heads": 2, "kv_tokens": 1024},
)
