"""Parameters of the engine sklearn. `python -m convoy_workloads.engines.sklearn.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Datatype = Literal["BOOL", "INT32", "INT64", "FP32", "FP64", "BYTES"]


class Params(BaseModel):
    """A model of scikit-learn. Its inputs and outputs come from the model."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "sklearn"
    """Name of the model in the path of requests."""
    trusted: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,254}$")]], Field(max_length=256)
    ] = []
    """Further types that the model's file may contain, such as `mypackage.MyTransformer`. Loading them may
    run their code, so list only types that you know.
    """
    inputs: Annotated[dict[str, Datatype], Field(max_length=4096)] = {}
    """Datatypes of inputs that differ from those that the engine finds in the model."""
    max_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Maximum number of rows that are computed together. A request with more rows is computed alone."""
    batching: bool = True
    """If false, each request is computed alone. Set it for a model whose rows influence each other."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of threads that compute. Small models are fastest with one."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    """Number of requests that may wait. Further requests get status 429."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Longest time for a request. The header `X-Request-Timeout` may shorten it."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1 << 20
    """Maximum size of a request's body."""


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
