"""Parameters of the engine tilefuse. `python -m convoy_workloads.engines.tilefuse.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from convoy_workloads.engines.lm.params import Params as LanguageModelParams


class Quant(BaseModel):
    """The quantisation of the weights."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    scheme: Literal["w4a16", "w8a16", "bf16"] = "w4a16"
    """Bits of a weight: 4, 8, or 16 for a model that is not quantised. A model whose files are quantised has
    its own scheme, which must be this one.
    """
    group_size: Annotated[int, Field(ge=32, le=65_536, multiple_of=32)] = 128
    """For a model whose files are not quantised: number of inputs that share a scale. It must divide the
    inputs of each matrix.
    """
    isa: Literal["auto", "amx", "avx512bf16", "avx512", "avx2", "twin"] = "auto"
    """Instruction set of the kernels. `auto` chooses the fastest that the processor has and that agrees with
    the numpy twin. `twin` is numpy, which is slow.
    """
    calibration_samples: Annotated[int, Field(ge=0, le=4096)] = 32
    """For a model whose files are not quantised: number of texts for the search of scales. 0 rounds each
    weight to the nearest code. A model with random weights is never calibrated.
    """
    clip: bool = True
    """For a model whose files are not quantised: true to search the range of each group too, if texts
    calibrate the model.
    """


class Params(LanguageModelParams):
    """A quantised language model, as `convoy quantize` makes it, or of the family Llama in the format AWQ."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "tilefuse"
    """Name of the model in requests and in `/v1/models`."""
    rows: Annotated[int, Field(ge=1, le=4096)] = 64
    """Maximum number of tokens that one iteration computes. Only the tokens that exist cost time."""
    threads: Annotated[int, Field(ge=0, le=256)] = 0
    """Number of threads of the kernels. 0: as many as the container's CPU quota allows."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the embedding, of the head and of the key-value cache."""
    quant: Quant = Quant()
    """The quantisation of the weights."""


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
