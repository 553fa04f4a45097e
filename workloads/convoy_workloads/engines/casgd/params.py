"""Parameters of the engine casgd. `python -m convoy_workloads.engines.casgd.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from convoy_workloads.optim.places import PLACES


class Params(BaseModel):
    """A generalized linear model. Each rank has a part of the columns, and all rows."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 40
    """Number of reported steps. A step runs `iterations` iterations of SGD."""
    iterations: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Number of iterations of SGD in a step. Checkpoints lie between steps."""
    s: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    """Number of iterations for one all-reduce, at most `iterations`. 1 is plain SGD, the baseline. `auto`
    chooses from measured costs; the choice is part of the checkpoint.
    """
    loss: Literal["logistic", "linear", "poisson"] = "logistic"
    """Loss of the model."""
    data: Literal["breast-cancer", "digits", "synth", "file"] = "breast-cancer"
    """Training data: bundled with scikit-learn, generated for the loss, or read from `file`."""
    file: str = ""
    """Path of a file in the text format of libsvm, for `data: file`. Each rank reads it."""
    rows: Annotated[int, Field(ge=1, le=100_000_000)] = 4096
    """Number of rows, for `data: synth`."""
    features: Annotated[int, Field(ge=1, le=10_000_000)] = 2000
    """Number of columns, for `data: synth`."""
    partition: Literal["contiguous", "striped"] = "contiguous"
    """Columns of a rank: neighbours, or every n-th of n ranks."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Number of rows in the batch of an iteration, over all ranks."""
    lr: Annotated[float, Field(gt=0, le=100)] = 0.05
    """Learning rate."""
    l2: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Factor of the L2 penalty. `lr` x `l2` must be below 1."""
    precision: Literal["fp32", "fp64", "mixed"] = "fp32"
    """Types of numbers. `mixed` stores features and margins in bf16, and computes all else in fp32."""
    choices: Annotated[dict[str, Literal["bf16", "fp32", "fp64"]], Field(max_length=9)] = {}
    """Other types at some of the nine places: data, gram_input, gram_accumulation, margin, communication,
    recurrence, residual, update, weight.
    """
    evaluate_every: Annotated[int, Field(ge=1)] = 10
    """Number of steps between two computations of the loss over all rows."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed for generated data and for the batches."""
    link_latency_ms: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    """Latency of emulated links between the ranks, in each direction; with `link_mbit_per_second`. For
    experiments.
    """
    link_mbit_per_second: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """Rate of emulated links. 0 with a latency of 0: the real network; 0 with a latency: no limit of the
    rate.
    """

    @model_validator(mode="after")
    def _fits(self) -> Params:
        if self.s != "auto" and self.s > self.iterations:
            raise ValueError(f"s: {self.s} is larger than the run of iterations={self.iterations}")
        if self.lr * self.l2 >= 1:
            raise ValueError(f"l2: lr={self.lr} x l2={self.l2} is not below 1")
        if (self.data == "file") != bool(self.file):
            raise ValueError("file: needed for data=file, and only there")
        if unknown := sorted(self.choices.keys() - set(PLACES)):
            raise ValueError(f"choices: {unknown[0]!r} is not one of {', '.join(PLACES)}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
