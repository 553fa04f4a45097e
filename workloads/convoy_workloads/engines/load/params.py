"""Parameters of the engine load. `python -m convoy_workloads.engines.load.params` prints their JSON Schema.

Their names and defaults are those of the options of `convoy load`.
"""

from __future__ import annotations

import itertools
import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from convoy.load.arrivals import MAX_RATE, MAX_SECONDS, Arrivals, Bursts
from convoy_crds.perturbations import Backend, perturbation_type
from convoy_workloads.simulators.perturbation import Perturbation

MAX_REQUESTS = 1000
"""Maximum number of prompts, and of bodies."""
MAX_TRACE = 10_000
"""Maximum number of recorded arrivals."""
Duration = Annotated[float, Field(ge=0.001, le=MAX_SECONDS)]


class Params(BaseModel):
    """One load on a service. The URL must be an address that the job's pod reaches, such as a Service."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: Annotated[str, Field(pattern=r"^https?://", max_length=2048)]
    """Address of the service, with or without /v1."""
    rate: Annotated[float, Field(ge=0.001, le=MAX_RATE)] = 10.0
    """Mean requests per second."""
    seconds: Duration | None = None
    """Duration: 10, or that of the trace."""
    arrivals: Arrivals = Arrivals.POISSON
    """Distribution of the time between requests."""
    burst_factor: Annotated[float, Field(ge=1, le=10_000)] = Bursts.factor
    """Rate in a burst, divided by the rate between bursts."""
    burst_seconds: Duration = Bursts.seconds
    """Mean duration of a burst."""
    calm_seconds: Duration = Bursts.calm_seconds
    """Mean time between two bursts."""
    steps: Annotated[str, Field(max_length=8192)] | None = None
    """Steps of the rate as `RATE:SECONDS,...`, instead of `rate` and `seconds`."""
    trace: (
        Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1, max_length=MAX_TRACE)] | None
    ) = None
    """Recorded arrivals to replay, in seconds from the first one, in ascending order."""
    speed: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """Factor by which the trace is replayed faster."""
    scale: Annotated[float, Field(ge=1e-6, le=1000)] = 1.0
    """Factor of the trace's number of requests."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of the arrivals, prompts and requests."""
    prompt: Annotated[str, Field(max_length=65_536)] = "def "
    """Prompt of all requests."""
    prompts: Annotated[list[str], Field(min_length=1, max_length=MAX_REQUESTS)] | None = None
    """Prompts, of which each request draws one."""
    max_tokens: Annotated[int, Field(ge=1)] = 16
    """Tokens to generate for each request."""
    model: Annotated[str, Field(max_length=253)] | None = None
    """Model to name in the requests."""
    chat: bool = False
    """True to use /v1/chat/completions."""
    stream: bool = True
    """True to read the response as a stream of tokens."""
    path: Annotated[str, Field(pattern=r"^/", max_length=2048)] | None = None
    """Route for `bodies`, such as `/v2/models/iris/infer`."""
    bodies: Annotated[list[Any], Field(min_length=1, max_length=MAX_REQUESTS)] | None = None
    """JSON bodies, of which each request draws one, instead of prompts."""
    timeout: Annotated[float, Field(ge=0.001, le=MAX_SECONDS)] = 30.0
    """Seconds from the scheduled time until a request counts as lost."""
    max_in_flight: Annotated[int, Field(ge=1, le=65_536)] = 1024
    """Requests in flight. Beyond it, requests count as unsent."""
    keep_alive: bool = True
    """True to use connections again. False, and a Service spreads each request."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share the requests."""
    token_file: Annotated[str, Field(max_length=4096)] | None = None
    """File in the pod with the service's bearer token, such as a mounted Secret."""
    perturbation: Perturbation | None = None
    """A change of the load for some time: WorkloadShift, a factor of the rate."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.steps and self.trace:
            raise ValueError("trace: give only one of steps and trace")
        if self.steps and self.seconds:
            raise ValueError("seconds: the steps have their own")
        if (self.path is None) != (self.bodies is None):
            raise ValueError("path: path and bodies belong together")
        if self.trace and any(after < before for before, after in itertools.pairwise(self.trace)):
            raise ValueError("trace: the arrivals are not in ascending order")
        if self.perturbation and Backend.LOAD not in perturbation_type(self.perturbation.kind).backends:
            raise ValueError(f"perturbation.kind: a load cannot inject {self.perturbation.kind}")
        return self


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
