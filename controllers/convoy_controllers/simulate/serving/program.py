"""The program of a simulated ServingJob's replicas, and the requests that clients send to the job."""

from __future__ import annotations

import math
import random
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from convoy_controllers.simulate.latencies import Seconds
from convoy_crds.meta import DnsLabel, Model

MAX_RATE = 10_000.0
"""Maximum requests per second of one entry in `traffic`."""


class Distribution(StrEnum):
    """Distribution of a random amount around its mean."""

    CONSTANT = "Constant"
    EXPONENTIAL = "Exponential"
    LOG_NORMAL = "LogNormal"
    """A long tail: the logarithm has the standard deviation `sigma`."""


class Amount(Model):
    """A random amount. In YAML, a plain number is a constant."""

    mean: Annotated[float, Field(gt=0, le=1e6)]
    distribution: Distribution = Distribution.EXPONENTIAL
    sigma: Annotated[float, Field(gt=0, le=3)] = 1.0
    """Standard deviation of the logarithm, for `LogNormal`."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"mean": value, "distribution": Distribution.CONSTANT}
        return value

    def draw(self, rng: random.Random) -> float:
        """Return a random value."""
        if self.distribution is Distribution.CONSTANT:
            return self.mean
        if self.distribution is Distribution.EXPONENTIAL:
            return rng.expovariate(1.0 / self.mean)
        return rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)


class Failure(StrEnum):
    """Failure of a replica whose revision is broken."""

    NEVER_READY = "NeverReady"
    """The replica loads its model, but its self-test fails."""
    CRASH = "Crash"
    """The replica exits with code 1 after it has loaded its model."""


class ServingProgram(Model):
    """The program of a replica. Times are seconds."""

    load_seconds: Seconds = 5.0
    """Time from the start of a replica's last rank until the replica can serve."""
    service_seconds: Amount | None = None
    """Time to compute one request. Default: 0.1 on average, `Exponential`."""
    tokens_per_second: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Tokens per second of one request, instead of `serviceSeconds`. A request takes
    `tokens / tokensPerSecond`.
    """
    tokens: Amount = Field(default_factory=lambda: Amount(mean=100))
    """Number of tokens of one request."""
    slots: Annotated[int, Field(ge=1, le=4096)] = 8
    """Number of requests that a replica computes at the same time."""
    queue: Annotated[int, Field(ge=0, le=65_536)] = 64
    """Number of requests that may wait at a replica. It sheds the others."""
    broken_revisions: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Numbers of the revisions that do not work. The job is created with revision 1, and each change that
    makes a revision counts one up.
    """
    failure: Failure = Failure.NEVER_READY
    """Failure of the replicas of `brokenRevisions`."""

    @model_validator(mode="after")
    def _has_one_speed(self) -> Self:
        if self.service_seconds is not None and self.tokens_per_second is not None:
            raise ValueError("set either serviceSeconds or tokensPerSecond, not both")
        return self

    def draw_seconds(self, rng: random.Random) -> float:
        """Return the seconds that the computation of one request takes."""
        if self.tokens_per_second is not None:
            return max(1.0, self.tokens.draw(rng)) / self.tokens_per_second
        return (self.service_seconds or _DEFAULT_SERVICE).draw(rng)


_DEFAULT_SERVICE = Amount(mean=0.1)


class Arrivals(StrEnum):
    """Times at which requests arrive. They do not depend on the responses (open loop)."""

    CONSTANT = "Constant"
    POISSON = "Poisson"


class Traffic(Model):
    """Requests of clients to one job."""

    job: DnsLabel
    """Name of a ServingJob of the scenario."""
    since: Annotated[Seconds, Field(alias="from")] = 0.0
    """Seconds from the start of the scenario to the first request."""
    to: Annotated[float, Field(gt=0)] | None = None
    """Seconds from the start of the scenario to the last request. Default: the end of the scenario."""
    rate: Annotated[float, Field(gt=0, le=MAX_RATE)]
    """Requests per second."""
    arrivals: Arrivals = Arrivals.POISSON

    def gap(self, rng: random.Random) -> float:
        """Return the seconds until the next request."""
        return 1.0 / self.rate if self.arrivals is Arrivals.CONSTANT else rng.expovariate(self.rate)
