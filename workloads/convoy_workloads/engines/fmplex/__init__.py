"""The engine fmplex: serves many tasks on shared backbones."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Serves many tasks on shared backbones, each with its own adapter, head, weight and queue.",
    role_kind="Serving",
    family="serving",
    example="fmplex.yaml",
    small={
        "backbones": [
            {"name": "text", "kind": "Text", "layers": 1, "width": 32, "heads": 2, "context": 32},
            {
                "name": "image",
                "kind": "Image",
                "layers": 1,
                "width": 32,
                "heads": 2,
                "image_size": 16,
                "patch": 4,
            },
        ],
        "batch": {"max": 4},
    },
    paper="FMplex: virtual foundation models, arXiv [2606.09643](https://arxiv.org/abs/2606.09643)",
)
