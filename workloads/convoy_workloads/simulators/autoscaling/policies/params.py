"""Parameters of the policies. The field `name` names the policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model
from convoy_crds.servingjob_scaling import Behavior


class HpaPolicy(Model):
    """HorizontalPodAutoscaler of Kubernetes 1.36, by the same code as ServingJobs."""

    name: Literal["hpa"] = "hpa"
    metric: Literal["cpu", "inFlight"] = "cpu"
    """Processor use of a replica, or its requests that wait or are served."""
    target: Annotated[float, Field(gt=0, le=100_000)] = 80.0
    """Mean of all replicas: percent of a processor core for `cpu`, rounded to a whole number, and number of
    requests for `inFlight`.
    """
    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Relative deviation from the target that causes no change."""
    downscale_stabilization_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Time over which the largest recommendation counts."""
    behavior: Behavior | None = None
    """Rules for the speed of changes, as in a HorizontalPodAutoscaler."""


class StaticPolicy(Model):
    """A fixed number of replicas."""

    name: Literal["static"]
    replicas: Annotated[int, Field(ge=1, le=1000)]
    """Number of replicas, within the limits."""


class RandomPolicy(Model):
    """A random number of replicas, drawn anew after `holdSeconds`."""

    name: Literal["random"]
    hold_seconds: Annotated[int, Field(ge=15, le=3600)] = 60
    """Time for which a drawn number stays."""


class ForecastPolicy(Model):
    """Enough replicas for the rate that Holt's linear smoothing forecasts."""

    name: Literal["forecast"]
    horizon_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """Time from the newest measurement to the forecast time."""
    level: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Weight of the newest rate in the smoothed rate."""
    trend: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Weight of the newest change in the smoothed trend."""
    target: Annotated[float, Field(gt=0, le=100)] = 80.0
    """Percent of the replicas' capacity that the forecast rate may use."""
    hold_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Time over which the largest recommendation counts."""


class OraclePolicy(Model):
    """Enough replicas for the largest rate until a replica created now is ready. It knows the future, so no
    real policy reaches it.
    """

    name: Literal["oracle"]
    target: Annotated[float, Field(gt=0, le=100)] = 80.0
    """Percent of the replicas' capacity that the rate may use."""
    smoothing_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """Time over which the rate is averaged."""


class ThresholdPolicy(Model):
    """One replica more above a threshold, one less well below it."""

    name: Literal["threshold"]
    threshold: Annotated[float, Field(gt=0, le=100)] = 70.0
    """Percent of the processor's core above which a replica is added."""
    shrink_ratio: Annotated[float, Field(ge=0, le=1)] = 0.75
    """A replica is removed if the others would use less than this share of the threshold."""


class TablePolicy(Model):
    """A table with the change for each number of replicas and each level of utilization."""

    name: Literal["table"]
    actions: Annotated[
        list[Annotated[str, Field(pattern=r"^[-=+]{10}$")]], Field(min_length=1, max_length=1000)
    ]
    """A text for each number of replicas from 1. It has a sign for each tenth of the utilization: `+` for one
    replica more, `-` for one less, `=` for no change.
    """
    interval_seconds: Annotated[int, Field(ge=15, le=3600)] = 60
    """Time between two changes."""


class QLearningPolicy(Model):
    """A table that Dyna-Q learns, after Rossi et al."""

    name: Literal["q-learning"]
    training_windows: Annotated[int, Field(ge=0, le=100)] = 8
    """Number of windows on which the table is trained before the run. In the run it learns no more. At 0 it
    learns in the run itself, from nothing.
    """
    training_seed: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number that selects the windows of the training."""
    interval_seconds: Annotated[int, Field(ge=15, le=3600)] = 60
    """Time between two changes. An interval should be long enough to show what a change has done."""
    late_penalty: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Cost of an interval in which requests waited too long. All replicas cost 1."""
    late_wait_seconds: Annotated[float, Field(ge=0, le=3600)] = 1.0
    """Estimated waiting time above which an interval counts as late."""
    change_penalty: Annotated[float, Field(ge=0, le=100)] = 0.01
    """Cost of each scaling up or down."""
    discount: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Weight of the next interval's cost."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Weight of a new cost in the expected cost."""
    exploration: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability of a random action at the start."""
    exploration_decisions: Annotated[float, Field(gt=0, le=1e6)] = 300.0
    """Number of decisions after which that probability has halved."""
    planning: Annotated[int, Field(ge=0, le=1000)] = 10
    """Number of remembered transitions that each decision learns from again."""


Policy = (
    HpaPolicy
    | StaticPolicy
    | RandomPolicy
    | ForecastPolicy
    | OraclePolicy
    | ThresholdPolicy
    | TablePolicy
    | QLearningPolicy
)
