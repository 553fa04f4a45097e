"""Parameters of the simulator spot."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from convoy_crds.meta import Duration, Model
from convoy_crds.suggest import suggestion
from convoy_workloads.spot.availability import PRESETS
from convoy_workloads.spot.trace_csv import SHIPPED

MAX_NODES = 1000
Seconds = Annotated[float, Field(ge=0, le=86_400)]
PricePerHour = Annotated[float, Field(gt=0, le=1e6)]


class Policy(StrEnum):
    """Rule for the capacity of the workers."""

    POOL = "Pool"
    """A SpotPool with its fall-back to on-demand nodes."""
    SPOT_ONLY = "SpotOnly"
    """Spot nodes only. Workers wait while there is none."""
    ON_DEMAND = "OnDemand"
    """On-demand nodes only."""


class FallbackRules(Model):
    """The rules of a SpotPool's `spec.fallback`."""

    spot_below: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of ready spot nodes below which workers are placed on on-demand nodes."""
    after: Duration = "2m"
    """Time with fewer ready spot nodes than `spotBelow` after which workers are placed on on-demand nodes."""
    minimum_stay: Duration = "10m"
    """Minimum time for which workers are placed on on-demand nodes."""
    max_interruptions_per_hour: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """Number of losses within an hour above which workers are placed on on-demand nodes at once."""


class Params(Model):
    """Workers, one on each node, and the capacity that they use."""

    policy: Policy = Policy.POOL
    """Rule for the capacity."""
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 16
    """Number of workers, and largest number of spot nodes."""
    trace: str = "v100-16-nodes"
    """Parameters of the capacity model, or a recorded trace."""
    zones: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of zones of the model. A zone takes its nodes all at once."""
    hours: Annotated[float, Field(gt=0, le=24 * 60)] = 24.0
    """Length of the run. A recorded trace repeats until then."""
    boot_seconds: Seconds = 60.0
    """Time until a node is ready. It is billed."""
    commit_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Time between the moments at which a worker saves its work."""
    notice_seconds: Seconds = 30.0
    """Time from a notice to the loss of the node."""
    notice_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the losses with a notice."""
    surrender_seconds: Seconds = 5.0
    """Time before the loss at which a worker with a notice has saved its work and stops."""
    fallback: FallbackRules = Field(default_factory=FallbackRules)
    """Rules of the policy Pool."""
    spot_price: PricePerHour = 0.27
    """Price of a spot node per hour."""
    on_demand_price: PricePerHour = 1.0
    """Price of an on-demand node per hour."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        known = [*PRESETS, *SHIPPED]
        if self.trace not in known:
            hint = suggestion(self.trace, known)
            raise ValueError(f"trace: {self.trace!r} is unknown; use one of {', '.join(known)}{hint}")
        if self.zones > self.nodes:
            raise ValueError(f"zones: must be at most nodes, {self.nodes}")
        return self
