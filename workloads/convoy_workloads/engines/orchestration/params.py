"""Parameters of the engine orchestration. `python -m convoy_workloads.engines.orchestration.params` prints
their JSON Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SystemName = Literal["autoscaling", "dag-scheduling", "allocation"]
KindName = Literal["ObservationLag", "TelemetryNoise", "WorkloadShift", "Tenant"]


class Params(BaseModel):
    """The study. With the defaults it takes about ten minutes on two CPU cores."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    systems: Annotated[list[SystemName], Field(min_length=1)] = [
        "autoscaling",
        "dag-scheduling",
        "allocation",
    ]
    """Systems to study."""
    perturbations: Annotated[list[KindName], Field(min_length=1)] = [
        "ObservationLag", "TelemetryNoise", "WorkloadShift", "Tenant",
    ]  # fmt: skip
    """Kinds of perturbations. Each system has one experiment for each kind."""
    magnitudes: Annotated[int, Field(ge=1, le=4)] = 4
    """Largest number of magnitudes of each perturbation. They are the first ones of its grid."""
    blocks: Annotated[int, Field(ge=2, le=40)] = 30
    """Number of test windows. All arms run on each one, under each condition."""
    trials: Annotated[int, Field(ge=1, le=500)] = 40
    """Number of settings that the tuning of each arm tries."""
    tuning_windows: Annotated[int, Field(ge=1, le=32)] = 6
    """Number of windows that each trial simulates."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 300
    """Number of iterations of the policy gradient."""
    rollouts: Annotated[int, Field(ge=2, le=64)] = 8
    """Number of runs in each iteration."""
    seconds: Annotated[int, Field(ge=600, le=86_400)] = 7200
    """Length of a window of autoscaling in virtual seconds."""
    jobs: Annotated[int, Field(ge=4, le=1000)] = 24
    """Number of jobs in a window of dag-scheduling. A window of allocation has three times as many."""
    resamples: Annotated[int, Field(ge=1000, le=100_000)] = 20_000
    """Resamples of each bootstrap and permutation test."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed of the whole study."""
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of processes. The results do not depend on it."""
    folder: str = ""
    """Folder to which the files are written too; empty for none. It is for runs on your own machine."""


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
