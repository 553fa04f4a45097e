"""The engine orchestration: a study of learned controllers against production-grade comparators, under
perturbations.
"""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

ENGINE = EngineEntry(
    package=__name__,
    description="Compares learned controllers with tuned comparators under registered perturbations.",
    role_kind="Training",
    family="tools",
    example="orchestration.yaml",
    small={
        "systems": ["dag-scheduling"],
        "perturbations": ["ObservationLag"],
        "magnitudes": 1,
        "blocks": 12,
        "trials": 1,
        "tuning_windows": 1,
        "iterations": 2,
        "rollouts": 2,
        "jobs": 4,
        "resamples": 1000,
        "workers": 1,
    },
    tool=True,
    paper="[Incentives and Evidence in Learned Service Orchestration](https://arxiv.org/abs/2606.16555)",
)
