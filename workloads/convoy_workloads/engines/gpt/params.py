"""Parameters of the engine gpt. `python -m convoy_workloads.engines.gpt.params` prints their JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Params(BaseModel):
    """A small language model over bytes. With the defaults it trains in about a minute on two CPU cores."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 200
    """Number of optimizer steps."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Number of sequences per rank and step."""
    context: Annotated[int, Field(ge=8, le=8192)] = 64
    """Number of bytes per sequence."""
    layers: Annotated[int, Field(ge=1, le=128)] = 4
    """Number of transformer blocks."""
    width: Annotated[int, Field(ge=8, le=16_384)] = 128
    """Size of the residual stream."""
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    """Number of attention heads. It must divide `width`."""
    experts: Annotated[int, Field(ge=0, le=256)] = 0
    """Number of experts in each block, of which each token uses `top_k`; 0 for a dense model."""
    top_k: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of experts that a token uses."""
    balance_weight: Annotated[float, Field(ge=0, le=10)] = 0.01
    """Weight of the penalty for experts with different numbers of tokens. With 0 a few experts get most
    tokens.
    """
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Peak learning rate of AdamW, reached after `warmup` steps. Then the rate falls along a cosine to a
    tenth of the peak.
    """
    warmup: Annotated[int, Field(ge=0)] = 20
    """Number of steps over which the learning rate rises to its peak."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed for the weights and for the order of the data."""
    held_out_every: Annotated[int, Field(ge=1)] = 50
    """Number of steps between two measurements of the loss on files that the model never trains on."""
    held_out_batches: Annotated[int, Field(ge=1, le=1024)] = 4
    """Number of batches, over all ranks, in one measurement of the loss on files that the model never
    trains on.
    """
    data_megabytes: Annotated[float, Field(gt=0, le=1024)] = 4.0
    """Maximum amount of text to read, in units of 10^6 bytes."""
    sample_bytes: Annotated[int, Field(ge=0, le=65_536)] = 200
    """Number of bytes of text that the model generates at the end; 0 to generate no text."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Params:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads={self.heads}")
        if self.experts and self.top_k > self.experts:
            raise ValueError(f"top_k: {self.top_k} is more than experts={self.experts}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
