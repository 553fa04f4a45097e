"""The settings of one autoscaled workload, in the terms of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CPU = "cpu"
"""Name of the resource whose samples count only once a pod has started up."""


class MetricType(StrEnum):
    """A source of a metric."""

    RESOURCE = "Resource"
    """A resource that all containers of each pod use."""
    CONTAINER_RESOURCE = "ContainerResource"
    """A resource that one container of each pod uses."""
    PODS = "Pods"
    """A value that each pod reports."""
    OBJECT = "Object"
    """A value of one other object."""
    EXTERNAL = "External"
    """A sum of values from outside the cluster."""


PER_POD = frozenset({MetricType.RESOURCE, MetricType.CONTAINER_RESOURCE, MetricType.PODS})
"""Types of metrics with one sample for each pod."""


class TargetType(StrEnum):
    """The quantity that a target bounds."""

    UTILIZATION = "Utilization"
    """The average use, in percent of the request."""
    VALUE = "Value"
    """The whole value."""
    AVERAGE_VALUE = "AverageValue"
    """The value divided by the number of pods."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a metric."""

    type: TargetType
    value: int
    """Percent for a target of type Utilization, otherwise thousandths of the metric's unit."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its target."""

    type: MetricType
    name: str
    """Name of the metric or of the resource."""
    target: Target
    container: str = ""
    """Name of the container, for a metric of type ContainerResource only."""
    activation: int = 0
    """Value above which the metric keeps the workload above zero, in thousandths of the metric's unit."""


class SelectPolicy(StrEnum):
    """A choice among the limits of several policies."""

    MAX = "Max"
    """The limit that allows the largest change."""
    MIN = "Min"
    """The limit that allows the smallest change."""
    DISABLED = "Disabled"
    """No change in this direction."""


class PolicyType(StrEnum):
    """The unit of a policy's value."""

    PODS = "Pods"
    PERCENT = "Percent"


@dataclass(frozen=True, slots=True)
class Policy:
    """A limit of the change within a period."""

    type: PolicyType
    value: int
    period_seconds: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The rules for one direction."""

    policies: tuple[Policy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_seconds: int | None = None
    """Seconds over which recommendations are compared. Without a value: 0 for scaling up,
    `Settings.downscale_stabilization_seconds` for scaling down.
    """
    tolerance: float | None = None
    """Relative deviation from the target that causes no change; `Settings.tolerance` without a value."""


SCALE_UP = ScalingRules((Policy(PolicyType.PODS, 4, 15), Policy(PolicyType.PERCENT, 100, 15)))
"""The default rules for scaling up."""
SCALE_DOWN = ScalingRules((Policy(PolicyType.PERCENT, 100, 15),))
"""The default rules for scaling down."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """The rules for both directions."""

    scale_up: ScalingRules = SCALE_UP
    scale_down: ScalingRules = SCALE_DOWN


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that Kubernetes takes from the flags of its controller manager. The defaults are
    Kubernetes' own.
    """

    tolerance: float = 0.1
    downscale_stabilization_seconds: int = 300
    cpu_initialization_seconds: float = 300.0
    """Seconds after a pod's start in which samples of its processor time may be skipped."""
    initial_readiness_delay_seconds: float = 30.0
    """Seconds after a pod's start in which a change to unready counts as part of the start."""


SYNC_SECONDS = 15.0
"""Seconds between two decisions."""
DEFAULT_METRICS = (Metric(MetricType.RESOURCE, CPU, Target(TargetType.UTILIZATION, 80)),)
"""Metrics of a workload that names none."""
COOLDOWN_SECONDS = 300.0
"""Default of `Scaling.cooldown_seconds`, as in KEDA."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The settings of one workload."""

    max_replicas: int
    min_replicas: int = 1
    """Minimum number of replicas. At 0 the workload scales to zero while no metric is active."""
    metrics: tuple[Metric, ...] = DEFAULT_METRICS
    behavior: Behavior | None = None
    """Rules of the user. Without them the simpler rules of Kubernetes hold, which keep no scale events."""
    cooldown_seconds: float = COOLDOWN_SECONDS
    """Seconds without an active metric before the workload scales to zero."""
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("metrics must not be empty; leave them out for the default")

    def scale_up_window(self, behavior: Behavior) -> int:
        """Return the stabilization window for scaling up, in seconds."""
        return behavior.scale_up.stabilization_seconds or 0

    def scale_down_window(self, behavior: Behavior) -> int:
        """Return the stabilization window for scaling down, in seconds."""
        window = behavior.scale_down.stabilization_seconds
        return self.settings.downscale_stabilization_seconds if window is None else window

    def tolerances(self) -> Tolerances:
        """Return the tolerance in each direction."""
        default = self.settings.tolerance
        if self.behavior is None:
            return Tolerances(default, default)
        down, up = self.behavior.scale_down.tolerance, self.behavior.scale_up.tolerance
        return Tolerances(default if down is None else down, default if up is None else up)


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The relative deviations from the target that cause no change."""

    down: float
    up: float

    def allow(self, usage_ratio: float) -> bool:
        """Return True if a ratio of usage to target is so close to 1 that nothing changes."""
        return 1.0 - self.down <= usage_ratio <= 1.0 + self.up
