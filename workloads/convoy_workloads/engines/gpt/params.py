"""Parameters of the gpt engine. `python -m convoy_workloads.engines.gpt.params` prints their JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Params(BaseModel):
    """A small language model over bytes. The defaults train in about a minute on two CPU cores."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 200
    """Optimizer steps."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Sequences per rank and step."""
    context: Annotated[int, Field(ge=8, le=8192)] = 64
    """Bytes per sequence."""
    layers: Annotated[int, Field(ge=1, le=128)] = 4
    """Transformer blocks."""
    width: Annotated[int, Field(ge=8, le=16_384)] = 128
    """Size of the residual stream."""
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    """Attention heads; must divide `width`."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Peak learning rate of AdamW, reached after `warmup` steps. A cosine then lowers it to a tenth."""
    warmup: Annotated[int, Field(ge=0)] = 20
    """Steps over which the learning rate rises."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Seed of the weights and of the order of the data."""
    held_out_every: Annotated[int, Field(ge=1)] = 50
    """Steps between two measurements of the loss on files that the model never trains on."""
    held_out_batches: Annotated[int, Field(ge=1, le=1024)] = 4
    """Batches in one such measurement, over all ranks."""
    data_megabytes: Annotated[float, Field(gt=0, le=1024)] = 4.0
    """Most text to read, in units of 10^6 bytes."""
    sample_bytes: Annotated[int, Field(ge=0, le=65_536)] = 200
    """Bytes of text that the model writes at the end; 0 for none."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Params:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads={self.heads}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
