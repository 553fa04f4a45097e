"""Parameters of the engine activator. `python -m convoy_workloads.engines.activator.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Params(BaseModel):
    """The bounds of one activator. Those of a ServingJob have the defaults, and its `holdSeconds`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    max_requests: Annotated[int, Field(ge=1, le=4096)] = 128
    """Number of requests that wait or are proxied. Further requests get status 503 with `Retry-After`."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 26)] = 1 << 20
    """Maximum size of a request's body. A larger one gets status 413."""
    hold_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Longest time for which a request waits for a replica. Then it gets status 503 with `Retry-After`."""
    silence_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Longest time for which a replica may send nothing after it has accepted a request."""
    addresses: Annotated[
        list[Annotated[str, Field(pattern=r"^[^\s/]+:[0-9]{1,5}$")]], Field(max_length=64)
    ] = []
    """Addresses of ready replicas, as `host:port`. In a ServingJob, the operator sends them instead."""


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
