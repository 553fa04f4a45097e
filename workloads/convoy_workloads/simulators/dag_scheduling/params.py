"""Parameters of the simulator dag-scheduling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model
from convoy_workloads.simulators.dag_scheduling import policies
from convoy_workloads.simulators.dag_scheduling.learned import SHAPE, WEIGHTS, Learned
from convoy_workloads.simulators.dag_scheduling.view import Policy
from convoy_workloads.simulators.dag_scheduling.workload import Workload
from convoy_workloads.simulators.learned_choice import learned_choice


class FifoPolicy(Model):
    """The oldest job first."""

    name: Literal["fifo"] = "fifo"

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        return policies.Fifo()


class ShortestJobPolicy(Model):
    """The job with the least work first, and in it the critical path."""

    name: Literal["shortest-job"]

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        return policies.ShortestJob()


class LongestJobPolicy(Model):
    """The job with the most work first. It serves as a positive control."""

    name: Literal["longest-job"]

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        return policies.LongestJob()


class WeightedFairPolicy(Model):
    """Weighted fair share. With the defaults it is plain fair share."""

    name: Literal["weighted-fair"]
    exponent: Annotated[float, Field(ge=-3, le=3)] = 0.0
    """Power of a job's remaining work that is the weight of the job. Below 0, small jobs get more."""
    limit: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of the executors that one job gets."""

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        return policies.WeightedFair(self.exponent, self.limit)


class GangPolicy(Model):
    """Gang scheduling: a job keeps all its executors from its start to its end."""

    name: Literal["gang"]
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the executors that a job gets."""
    order: Literal["oldest", "shortest"] = "oldest"
    """Job that is admitted first."""

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        return policies.Gang(max(1, round(self.share * executors)), self.order == "shortest")


class LearnedPolicy(Model):
    """A network that scores stages, after Decima. The Engine `orchestration` trains it."""

    name: Literal["learned"]
    weights: Annotated[list[float], Field(min_length=WEIGHTS, max_length=WEIGHTS)]
    """Weights of the network, as the Engine `orchestration` writes them to `study.json`."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0 to choose the best stage. Above 0, stages are drawn at random by their scores."""
    start_bias: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Number that is added to the score of every stage. Above 0, fewer executors stay idle."""

    def create(self, executors: int, seed: int) -> Policy:
        """Return the policy for one run."""
        # The first feature is 1 for a stage and 0 for idle executors.
        weights = [self.weights[0] + self.start_bias, *self.weights[1:]]
        return Learned(learned_choice(SHAPE, weights, self.temperature, seed))


AnyPolicy = (
    FifoPolicy | ShortestJobPolicy | LongestJobPolicy | WeightedFairPolicy | GangPolicy | LearnedPolicy
)


class Params(Model):
    """A cluster with executors, its jobs, and the policy that schedules them."""

    policy: Annotated[AnyPolicy, Field(discriminator="name")] = Field(default_factory=FifoPolicy)
    """Scheduler. Its `name` selects it; the default is `fifo`."""
    workload: Workload = Field(default_factory=Workload)
    """Jobs of the run."""
    executors: Annotated[int, Field(ge=2, le=1000)] = 10
    """Number of executors. Each one runs one task at a time."""
    move_seconds: Annotated[float, Field(ge=0, le=600)] = 2.5
    """Time that an executor needs before its first task of another job."""
    slowdown: Annotated[float, Field(ge=0, le=10)] = 0.5
    """Relative slowdown of a job's tasks if it has twice as many executors as its sweet spot."""
