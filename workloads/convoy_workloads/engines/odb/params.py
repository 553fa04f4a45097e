"""Parameters of the engine odb. `python -m convoy_workloads.engines.odb.params` prints their JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Params(BaseModel):
    """A small language model over documents of different lengths. The engine runs the method and its
    baselines (`batching`), so that an Experiment can compare them.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=10_000_000)] = 100
    """Number of optimizer steps."""
    batching: Literal["online", "fixed", "grouped", "oracle", "blind"] = "online"
    """`online`: batches are formed under the token budget from the lengths seen. `fixed`: batches of as many
    samples as always fit. `grouped`: fixed batches of samples of like length, as in Hugging Face's Trainer;
    needs all lengths in advance. `oracle`: the best batches under the budget; needs all lengths in advance.
    `blind`: `online`, but all samples seem to have the maximum length; the negative control.
    """
    token_budget: Annotated[int, Field(ge=2, le=10_000_000)] = 4096
    """Maximum number of tokens of a rank's batch after padding."""
    window: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """Number of samples from which a rank forms batches."""
    mode: Literal["join", "quota"] = "join"
    """`join`: an epoch has every sample once. `quota`: it ends after `sample_quota` samples of all ranks, or
    when a rank has no more samples.
    """
    sample_quota: Annotated[int, Field(ge=1)] | None = None
    """Samples of an epoch in the mode `quota`."""
    loss_scaling: Literal["exact", "approx", "none"] = "exact"
    """`exact`: the gradient of all samples of a step in one batch. `approx`: ranks count by their samples.
    `none`: all ranks count the same.
    """
    overlong_policy: Literal["truncate", "reject"] = "truncate"
    """Treatment of a document that is longer than `longest`: cut it, or put it into quarantine."""
    warmup_rounds: Annotated[int, Field(ge=0, le=20)] = 0
    """Number of rounds in which the window grows to its size, so that the first step starts sooner."""
    slots: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Maximum number of batches between two alignments; 0: no limit but the window."""
    batch_overhead: Annotated[int, Field(ge=0, le=10_000_000)] | None = 200
    """Tokens that take as long as the fixed cost of a batch: groups then have the least total cost. Null:
    groups are filled from the longest sample on, as the paper does.
    """
    samples_per_step: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Mean number of samples, over all ranks, in an optimizer step: the gradients of several batches are
    added, and a step whose batches have more samples is followed by smaller ones. 0: each batch is a step.
    All kinds of batching have the same mean, which must not be less than the samples of their batches.
    """
    samples: Annotated[int, Field(ge=1, le=100_000_000)] = 2400
    """Number of documents."""
    lengths: Literal["lognormal", "pareto", "functions"] = "lognormal"
    """Lengths of the documents: drawn at random, or those of the functions and classes of the text."""
    mean_length: Annotated[float, Field(gt=0, le=1_000_000)] = 250.0
    """Mean number of bytes of a document, for lengths drawn at random."""
    length_cv: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Standard deviation of the lengths over their mean, for `lognormal`."""
    longest: Annotated[int, Field(ge=2, le=1_000_000)] = 1024
    """Maximum number of tokens of a document, and the model's context."""
    layers: Annotated[int, Field(ge=1, le=128)] = 3
    """Number of transformer blocks."""
    width: Annotated[int, Field(ge=8, le=16_384)] = 96
    """Size of the residual stream."""
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    """Number of attention heads. It must divide `width`."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-3
    """Learning rate of AdamW."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed of the weights, the lengths, and the order of the documents."""
    held_out_every: Annotated[int, Field(ge=1)] = 50
    """Number of steps between two measurements of the loss on documents that the model never trains on."""
    held_out_documents: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Number of documents, over all ranks, in a measurement of that loss."""
    workers: Annotated[int, Field(ge=0, le=64)] = 0
    """Processes of each rank that read documents; 0: the rank itself."""
    data_megabytes: Annotated[float, Field(gt=0, le=1024)] = 4.0
    """Maximum amount of text to read, in units of 10^6 bytes."""

    @model_validator(mode="after")
    def _consistent(self) -> Params:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads={self.heads}")
        if self.longest > self.token_budget:
            raise ValueError(
                f"longest: no batch fits a document of {self.longest} tokens: set it to at most "
                f"token_budget={self.token_budget}"
            )
        if self.sample_quota is not None and self.mode != "quota":
            raise ValueError("sample_quota: needs mode: quota")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
