"""Parameters of the engine prelort. `python -m convoy_workloads.engines.prelort.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rank = Annotated[int, Field(ge=1, le=1024)]


class Fault(BaseModel):
    """A fault of a client, for experiments."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    client: Annotated[int, Field(ge=0)]
    """Number of the client, from 0."""
    round: Annotated[int, Field(ge=1)]
    """First round of the fault."""
    kind: Literal["vanish", "nan", "unknown-rank", "other-round"]
    """The client sends nothing, adapters that are not finite, a rank that does not exist, or an old round."""
    rounds: Annotated[int, Field(ge=1)] = 1
    """Number of rounds that the fault lasts."""


class Params(BaseModel):
    """A federation of simulated clients. Each rank of the job plays some of them in turn."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 25
    """Number of rounds."""
    task: Literal["digits", "text"] = "digits"
    """`digits`: a classifier of handwritten digits that was trained on 0 to 4. `text`: a byte-level language
    model that was trained on source code, for clients with source code and English prose.
    """
    clients: Annotated[list[Rank], Field(min_length=1, max_length=1024)] = [2, 2, 2, 4, 4, 8, 16, 16]
    """Rank of each client's adapter."""
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=64)] = [2, 4, 8, 16]
    """Allowed ranks, ascending."""
    aggregation: Literal[
        "segment", "segment-product", "zeropad", "replicate", "truncate", "product", "fedavg"
    ] = "segment"
    """Rule of the server. `segment` is PreLort's. `segment-product` is ours: it takes the means of the
    segments' products, not of their factors. The others are baselines.
    """
    nested: bool = True
    """If true, clients train every prefix of their adapter."""
    local_steps: Annotated[int, Field(ge=1, le=100_000)] = 8
    """Number of optimizer steps of a client in a round."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Number of samples in a step of a client."""
    lr: Annotated[float, Field(gt=0, le=10)] = 0.01
    """Learning rate of the clients' Adam, which starts anew in each round."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Parameter of the Dirichlet distribution of classes, or kinds of text, over clients. Small: very
    different.
    """
    pretrain_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    """Number of steps that train the base model, before the first round."""
    clients_per_round: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of clients that are drawn for a round; 0 for all."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the clients of a round that must send usable adapters. Else the round changes nothing."""
    round_timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds after which a client gives up a round. It counts as a straggler."""
    max_lost_rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    """Number of rounds without a quorum, one after the other, after which the job fails."""
    faults: Annotated[list[Fault], Field(max_length=256)] = []
    """Faults of clients, for experiments: `client` (from 0), `round` (the first), `rounds` (1), and `kind`:
    `vanish`, `nan`, `unknown-rank` or `other-round`.
    """
    evaluate_every: Annotated[int, Field(ge=1)] = 5
    """Number of rounds between two evaluations on held-out data."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed for base model, spread of the data and batches."""

    @model_validator(mode="after")
    def _fits(self) -> Params:
        if any(one >= other for one, other in pairwise(self.ranks)):
            raise ValueError(f"ranks: {self.ranks} are not ascending")
        if unknown := sorted(set(self.clients) - set(self.ranks)):
            raise ValueError(f"clients: rank {unknown[0]} is not one of ranks={self.ranks}")
        if self.clients_per_round > len(self.clients):
            raise ValueError(f"clients_per_round: {self.clients_per_round} of {len(self.clients)} clients")
        if self.aggregation == "fedavg" and set(self.clients) != {self.ranks[-1]}:
            raise ValueError("aggregation: fedavg needs clients that all have the largest of ranks")
        for number, fault in enumerate(self.faults):
            if fault.client >= len(self.clients):
                raise ValueError(f"faults[{number}].client: there is no client {fault.client}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
