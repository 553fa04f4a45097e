"""Parameters of the engine lm. `python -m convoy_workloads.engines.lm.params` prints their JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Params(BaseModel):
    """A language model, as `gpt` trains it or of the family Llama. Its shape comes from the checkpoint."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "lm"
    """Name of the model in requests and in `/v1/models`."""
    rows: Annotated[int, Field(ge=1, le=4096)] = 16
    """Number of tokens that one iteration computes. Sequences that generate get one each; prompts share the
    rest.
    """
    max_sequences: Annotated[int, Field(ge=1, le=4096)] = 8
    """Maximum number of sequences in the batch. It must not exceed `rows`."""
    block: Annotated[int, Field(ge=1, le=256)] = 16
    """Number of tokens in a block of the key-value cache."""
    kv_tokens: Annotated[int, Field(ge=16, le=100_000_000)] = 16_384
    """Number of tokens that the key-value cache holds, over all sequences."""
    prefix_reuse: bool = True
    """If true, a prompt reuses the keys and values of an earlier prompt with the same beginning."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of threads that compute. Small models are fastest with one."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    """Number of continuations that may wait. Further requests get status 429."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Longest time for a request. The header `X-Request-Timeout` may shorten it."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1 << 20
    """Maximum size of a request's body."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights and of the key-value cache. Attention adds up in float32."""
    heads: Annotated[int, Field(ge=0, le=256)] = 0
    """Number of attention heads, for a model whose files do not contain it. 0 takes the number from the
    files.
    """
    context: Annotated[int, Field(ge=8, le=8192)] = 256
    """Without a model: context of the model that the engine makes."""
    layers: Annotated[int, Field(ge=1, le=128)] = 4
    """Without a model: number of transformer blocks."""
    width: Annotated[int, Field(ge=8, le=16_384)] = 128
    """Without a model: size of the residual stream. `heads`, 4 by default, must divide it."""
    architecture: Literal["gpt", "llama"] = "gpt"
    """Without a model: family of the model that the engine makes."""
    kv_heads: Annotated[int, Field(ge=0, le=256)] = 0
    """Without a model, llama: number of key-value heads. It must divide `heads`. 0 for as many as `heads`."""
    feed: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Without a model, llama: width of the feed-forward network. 0 for 8/3 of `width`, rounded up to a
    multiple of 64.
    """
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Without a model: random seed of the weights."""

    @model_validator(mode="after")
    def _fits(self) -> Params:
        if self.max_sequences > self.rows:
            raise ValueError(f"max_sequences: {self.max_sequences} exceeds rows={self.rows}")
        if self.kv_tokens < self.block:
            raise ValueError(f"kv_tokens: {self.kv_tokens} is less than one block of {self.block} tokens")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
