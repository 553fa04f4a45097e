"""Parameters of the engine experiment-simulation. `python -m
convoy_workloads.engines.experiment_simulation.params` prints their JSON Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from convoy_crds.experiment_arm import TunedParameter
from convoy_crds.experiment_plan import Better
from convoy_workloads.simulators.perturbation import Perturbation

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Simulation(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    simulator: Annotated[str, Field(max_length=63)]
    """Name of the simulator."""
    params: dict[str, Any] = {}
    """Settings of the simulator."""
    seed: Seed = 0
    """Seed of all random choices."""


class RunParams(_Simulation):
    """The parameters of one simulated run."""

    action: Literal["run"]
    """`run` for one run, `tune` to search for better parameters."""
    perturbation: Perturbation | None = None
    """Perturbation of the run; absent for an undisturbed run."""


class TuneParams(_Simulation):
    """The tuning of parameters."""

    action: Literal["tune"]
    search: Annotated[list[TunedParameter], Field(min_length=1, max_length=16)]
    """The parameters to tune, and their ranges."""
    trials: Annotated[int, Field(ge=1, le=1000)]
    """Number of settings that the tuning tries."""
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=32)]
    """Seeds of the runs that each trial simulates."""
    figure: Annotated[str, Field(max_length=63)]
    """Figure of the simulator that the tuning improves, as the mean over `seeds`."""
    better: Better
    """Higher or Lower: the direction in which the figure is better."""


class Params(RootModel[Annotated[RunParams | TuneParams, Field(discriminator="action")]]):
    """A run or a tuning."""


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
