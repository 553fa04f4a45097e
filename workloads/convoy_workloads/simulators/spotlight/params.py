"""Parameters of the simulator spotlight: those of the engine, and the end of the run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_workloads.engines.spotlight.params import Params as EngineParams


class Params(EngineParams):
    """A run of the Engine [spotlight](../engines/spotlight.md), whose page has the fields of the objects.
    `steps` limits the iterations.
    """

    limit_hours: Annotated[float, Field(gt=0, le=1000)] = 14.0
    """Virtual time after which a run ends that has not reached the target."""
    evaluate_every: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of iterations between two evaluations."""
    smoothing: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of evaluations whose mean must reach the target."""
    check_hours: Annotated[float, Field(ge=0, le=1000)] = 3.0
    """Virtual time of the figure `rewardAtTime`. No run ends earlier."""
    check_spend: Annotated[float, Field(ge=0, le=1_000_000)] = 15.0
    """Cost of the figure `rewardAtSpend`. No run ends earlier."""
