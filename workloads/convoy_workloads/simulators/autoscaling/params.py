"""Parameters of the simulator autoscaling."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from convoy_crds.meta import Model
from convoy_workloads.simulators.autoscaling.policies.params import HpaPolicy, Policy
from convoy_workloads.simulators.autoscaling.workload import BurstyWorkload, Workload


class Params(Model):
    """A service, its requests, and the policy that decides its number of replicas."""

    policy: Annotated[Policy, Field(discriminator="name")] = Field(default_factory=HpaPolicy)
    """Policy that decides the number of replicas. Its `name` selects it; the default is `hpa`."""
    workload: Annotated[Workload, Field(discriminator="name")] = Field(default_factory=BurstyWorkload)
    """Requests of the run. Their `name` is `bursty`, the default, or `trace`."""
    seconds: Annotated[int, Field(ge=60, le=86_400)] = 10_800
    """Length of the run in virtual seconds."""
    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Smallest number of replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 40
    """Largest number of replicas."""
    initial_replicas: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of replicas that are ready at the start."""
    service_seconds: Annotated[float, Field(gt=0, le=60)] = 0.2
    """Processor time of one request. A replica has one processor core."""
    boot_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """Time from the creation of a replica until it is ready."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Latency above which a request is late."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Time after which a waiting request is given up. It is lost, and counts as late."""
    late_weight: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """Pod hours that one percent of late requests counts as in the figure `weightedCost`. A tuning needs one
    figure, and the latency alone would ask for all replicas.
    """
    metric_lag_seconds: Annotated[int, Field(ge=0, le=3600)] = 15
    """Age of the newest measurement that the policy sees."""
    metric_window_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """Time over which one measurement is averaged."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"minReplicas: must be at most maxReplicas, {self.max_replicas}")
        if not self.min_replicas <= self.initial_replicas <= self.max_replicas:
            raise ValueError("initialReplicas: must be from minReplicas to maxReplicas")
        if self.deadline_seconds > self.timeout_seconds:
            raise ValueError(f"deadlineSeconds: must be at most timeoutSeconds, {self.timeout_seconds}")
        return self
