"""Parameters of the engine adaptiveload. `python -m convoy_workloads.engines.adaptiveload.params` prints
their JSON Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Tokens = Annotated[int, Field(ge=4, le=1_000_000)]


class Params(BaseModel):
    """A small diffusion transformer over videos of different sizes. The engine runs the method and its
    baselines (`rule`, `dealing`), so that an Experiment can compare them.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 60
    """Number of optimizer steps."""
    rule: Literal["measured", "paper", "equal_tokens"] = "measured"
    """Limit of a batch of B samples with S tokens, besides memory. `measured`: the fitted time of a step.
    `paper`: B S^p. `equal_tokens`: none; the baseline.
    """
    dealing: Literal["window_sorted", "none"] = "window_sorted"
    """`window_sorted`: the ranks of a step get batches of like cost. `none`: batches are dealt at random."""
    memory_tokens: Annotated[int, Field(ge=1, le=100_000_000)] = 4096
    """Maximum number of tokens of a rank's batch."""
    compute: Annotated[float, Field(gt=0)] | None = None
    """Maximum cost of a batch: seconds of a step for `measured`, B S^p for `paper`. Null: the cost of one
    sample of the longest bucket.
    """
    exponent: Annotated[float, Field(ge=1, le=3)] | None = None
    """Exponent p of the rule `paper`. Null: fitted to measured steps."""
    profile: bool = True
    """True to measure a step of each bucket before the first step, for a table from the start."""
    window: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """Samples from which batches are formed. The table changes between windows only."""
    refit_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Minimum number of steps between two fits of the cost; 0: the first table stays."""
    buckets: Annotated[list[Tokens], Field(min_length=1, max_length=64)] = [128, 256, 512, 1024, 2048]
    """Tokens of the videos. Videos of all sizes are equally many; a size that is listed n times is n times as
    frequent.
    """
    samples: Annotated[int, Field(ge=1, le=100_000_000)] = 640
    """Number of videos."""
    channels: Annotated[int, Field(ge=1, le=1024)] = 8
    """Values of a token."""
    layers: Annotated[int, Field(ge=1, le=128)] = 2
    """Number of transformer blocks."""
    width: Annotated[int, Field(ge=8, le=16_384)] = 96
    """Size of the residual stream."""
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    """Number of attention heads. It must divide `width`."""
    fused: bool = True
    """True for the fused LayerNorm-Modulate, False for the usual operations."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate of AdamW."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed of the weights, the videos and their order."""

    @model_validator(mode="after")
    def _consistent(self) -> Params:
        if self.width % (2 * self.heads):
            raise ValueError(f"width: {self.width} must be a multiple of 2 * heads={2 * self.heads}")
        if max(self.buckets) > self.memory_tokens:
            raise ValueError(
                f"memory_tokens: no batch fits a video of {max(self.buckets)} tokens: set it to at least that"
            )
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
