"""The part of a ServingJob's spec that defines how many replicas a role has under load. It has the shape of
a HorizontalPodAutoscaler, `autoscaling/v2`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from convoy_crds.meta import Model, Rule, validated
from convoy_crds.podtemplate import OpenObject

MAX_METRICS = 16
DEFAULT_COOLDOWN_SECONDS = 300
DEFAULT_HOLD_SECONDS = 60
_QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
_LIMITS: dict[str, JsonValue] = {"pattern": _QUANTITY, "minimum": 0, "maxLength": 32}

Quantity = Annotated[
    Annotated[int, Field(strict=True, ge=0)] | Annotated[str, Field(pattern=_QUANTITY, max_length=32)],
    Field(json_schema_extra=_LIMITS),
]
"""A quantity as in Kubernetes, such as `500m`, `2` or `1.5k`."""


class ScalingMode(StrEnum):
    """The writer of a role's number of replicas."""

    CONVOY = "Convoy"
    """Convoy decides by the rules of a HorizontalPodAutoscaler, from reports of the replicas."""
    HORIZONTAL_POD_AUTOSCALER = "HorizontalPodAutoscaler"
    """Convoy creates a HorizontalPodAutoscaler, which changes `spec.replicas`."""
    NONE = "None"
    """Nothing scales the role. Its number of replicas stays as it is, unless you change it."""


class ScalingMetric(StrEnum):
    """Metrics of type Pods that mode Convoy knows. Each has one value for each replica."""

    WAITING = "convoy_num_requests_waiting"
    """Requests that wait for the compute loop. It is the only metric with a value at 0 replicas."""
    RUNNING = "convoy_num_requests_running"
    """Requests that are being computed."""
    REQUESTS = "convoy_requests_per_second"
    """Requests per second that ended, over the last minute."""
    TOKENS = "convoy_generation_tokens_per_second"
    """Generated tokens per second, over the last minute."""
    LATENCY = "convoy_e2e_request_latency_p95_seconds"
    """95th percentile of the duration of requests, over the last minute."""
    FIRST_TOKEN = "convoy_time_to_first_token_p95_seconds"  # noqa: S105 - the name of a metric
    """95th percentile of the time to the first token, over the last minute."""


class MetricType(StrEnum):
    """Source of a metric, as in a HorizontalPodAutoscaler."""

    RESOURCE = "Resource"
    """Processor or memory use of the pods."""
    CONTAINER_RESOURCE = "ContainerResource"
    """Processor or memory use of one container of the pods."""
    PODS = "Pods"
    """A metric that each pod has. Its mean is compared with the target."""
    OBJECT = "Object"
    """A metric of one other object."""
    EXTERNAL = "External"
    """A metric from outside the cluster."""


class TargetType(StrEnum):
    """Meaning of a metric's target, as in a HorizontalPodAutoscaler."""

    UTILIZATION = "Utilization"
    """Percentage of the pods' requests of the resource."""
    VALUE = "Value"
    """Value of the whole metric."""
    AVERAGE_VALUE = "AverageValue"
    """Mean value of a pod."""


def _goes_with(kind: str, field: str) -> Rule:
    return Rule(
        f"(self.type == '{kind}') == has(self.{field})",
        f"type {kind} needs {field}, and {field} needs type {kind}",
        f".{field}",
    )


def _positive(field: str) -> Rule:
    return Rule(
        f"!has(self.{field}) || string(self.{field}).matches('^[0-9.]*[1-9]')",
        f"{field} must be greater than 0",
        f".{field}",
    )


class MetricTarget(Model):
    """The value that the autoscaler aims at."""

    model_config = validated(
        _goes_with("Utilization", "averageUtilization"),
        _goes_with("Value", "value"),
        _goes_with("AverageValue", "averageValue"),
        _positive("value"),
        _positive("averageValue"),
    )

    type: TargetType
    average_utilization: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Mean use, as a percentage of the request."""
    value: Quantity | None = None
    average_value: Quantity | None = None


class MetricIdentifier(Model):
    """Name of a metric."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    selector: OpenObject | None = None
    """Label selector of the metric. Only for mode HorizontalPodAutoscaler."""


class ResourceMetric(Model):
    """Use of a resource by the pods."""

    model_config = validated(
        Rule(
            "self.target.type != 'Value'",
            "target.type must be Utilization or AverageValue",
            ".target.type",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """`cpu`. Mode HorizontalPodAutoscaler also knows `memory`."""
    target: MetricTarget


class ContainerResourceMetric(ResourceMetric):
    """Use of a resource by one container of the pods."""

    container: Annotated[str, Field(min_length=1, max_length=63)]


class PodsMetric(Model):
    """A metric that each pod has."""

    model_config = validated(
        Rule("self.target.type == 'AverageValue'", "target.type must be AverageValue", ".target.type"),
    )

    metric: MetricIdentifier
    target: MetricTarget


class DescribedObject(Model):
    """The object whose metric counts."""

    api_version: Annotated[str, Field(max_length=253)] | None = None
    kind: Annotated[str, Field(min_length=1, max_length=63)]
    name: Annotated[str, Field(min_length=1, max_length=253)]


class ObjectMetric(Model):
    """A metric of one other object."""

    model_config = validated(
        Rule(
            "self.target.type != 'Utilization'", "target.type must be Value or AverageValue", ".target.type"
        ),
    )

    described_object: DescribedObject
    metric: MetricIdentifier
    target: MetricTarget


class ExternalMetric(Model):
    """A metric from outside the cluster."""

    model_config = validated(
        Rule(
            "self.target.type != 'Utilization'", "target.type must be Value or AverageValue", ".target.type"
        ),
    )

    metric: MetricIdentifier
    target: MetricTarget


class Metric(Model):
    """A metric and its target. With several metrics, the one that demands most replicas counts."""

    model_config = validated(
        _goes_with("Resource", "resource"),
        _goes_with("ContainerResource", "containerResource"),
        _goes_with("Pods", "pods"),
        _goes_with("Object", "object"),
        _goes_with("External", "external"),
    )

    type: MetricType
    resource: ResourceMetric | None = None
    container_resource: ContainerResourceMetric | None = None
    pods: PodsMetric | None = None
    object: ObjectMetric | None = None
    external: ExternalMetric | None = None
    activation_threshold: Quantity | None = None
    """With `minReplicas: 0`: value of the whole metric above which the role is active. A role that is not
    active, and has no requests, goes to 0 after `cooldownSeconds`. An active one has at least 1 replica.
    Absent: 0.
    """


class SelectPolicy(StrEnum):
    """Choice between several policies."""

    MAX = "Max"
    """The policy that allows the largest change."""
    MIN = "Min"
    """The policy that allows the smallest change."""
    DISABLED = "Disabled"
    """No change in this direction."""


class PolicyType(StrEnum):
    """Unit of a policy's value."""

    PODS = "Pods"
    """Number of replicas."""
    PERCENT = "Percent"
    """Percentage of the present replicas."""


class ScalingPolicy(Model):
    """The largest change within a period."""

    type: PolicyType
    value: Annotated[int, Field(ge=1, le=2**31 - 1)]
    period_seconds: Annotated[int, Field(ge=1, le=1800)]


class ScalingRules(Model):
    """Rules for changes in one direction."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Seconds of past recommendations from which the one with the smallest change is taken. Absent: 0 for
    scaleUp, 300 for scaleDown.
    """
    select_policy: SelectPolicy = SelectPolicy.MAX
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=8)] | None = None
    """Absent: for scaleUp 4 Pods or 100 Percent in 15 s, for scaleDown 100 Percent in 15 s."""
    tolerance: Quantity | None = None
    """Relative distance from the target within which the number of replicas stays, such as `0.05`. Absent:
    0.1.
    """


class Behavior(Model):
    """Rules for the speed of changes. `{}` gives each direction the default rules of a
    HorizontalPodAutoscaler. Without `behavior`, one step at most doubles the replicas, to at least 4.
    """

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


_CONVOY = "(!has(self.mode) || self.mode == 'Convoy')"
_HPA = "(has(self.mode) && self.mode == 'HorizontalPodAutoscaler')"
_METRICS = "(has(self.metrics) ? self.metrics : [])"
_KNOWN = ", ".join(f"'{one}'" for one in ScalingMetric)
_MIN = "(has(self.minReplicas) ? self.minReplicas : 1)"


class Scaling(Model):
    """Limits and metrics by which a role's number of replicas follows the load."""

    model_config = validated(
        Rule(
            f"{_MIN} <= self.maxReplicas",
            "minReplicas must be at most maxReplicas",
            ".minReplicas",
        ),
        Rule(
            f"!{_HPA} || {_METRICS}.all(m, !has(m.activationThreshold))",
            "activationThreshold is only for mode Convoy",
            ".metrics",
        ),
        Rule(
            f"!{_CONVOY} || {_METRICS}.all(m, m.type in ['Pods', 'Resource'])",
            "mode Convoy knows metrics of type Pods and Resource: for others set mode: "
            "HorizontalPodAutoscaler",
            ".metrics",
        ),
        Rule(
            f"!{_CONVOY} || {_METRICS}.all(m, !has(m.resource) || m.resource.name == 'cpu')",
            "mode Convoy knows the resource cpu only: for others set mode: HorizontalPodAutoscaler",
            ".metrics",
        ),
        Rule(
            f"!{_CONVOY} || {_METRICS}.all(m, !has(m.pods) || (m.pods.metric.name in [{_KNOWN}]"
            " && !has(m.pods.metric.selector)))",
            f"mode Convoy knows these Pods metrics, without selector: {', '.join(ScalingMetric)}",
            ".metrics",
        ),
        Rule(
            f"{_CONVOY} || {_MIN} > 0",
            "minReplicas: 0 is only for mode Convoy. A HorizontalPodAutoscaler cannot scale to 0, because "
            "Kubernetes needs its alpha feature HPAScaleToZero for it: set minReplicas: 1",
            ".minReplicas",
        ),
        Rule(
            f"{_MIN} > 0 || {_METRICS}.exists(m, has(m.pods)"
            f" && m.pods.metric.name == '{ScalingMetric.WAITING}')",
            f"minReplicas: 0 needs the Pods metric {ScalingMetric.WAITING}: no other metric has a value at "
            "0 replicas",
            ".metrics",
        ),
    )

    mode: ScalingMode = ScalingMode.CONVOY
    min_replicas: Annotated[int, Field(ge=0, le=1_000)] = 1
    """Minimum number of replicas. With 0, activator pods hold the requests that arrive at 0 replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=1_000)]
    """Maximum number of replicas."""
    metrics: Annotated[list[Metric], Field(max_length=MAX_METRICS)] = Field(default_factory=list)
    """Metrics and their targets. Empty: processor use of 80 % of the request, as in a
    HorizontalPodAutoscaler.
    """
    behavior: Behavior | None = None
    """Rules for the speed of changes."""
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] = DEFAULT_COOLDOWN_SECONDS
    """With `minReplicas: 0`: seconds since the last request, and since a metric was last above its activation
    threshold, after which the last replica is deleted.
    """
    hold_seconds: Annotated[int, Field(ge=1, le=3_600)] = DEFAULT_HOLD_SECONDS
    """With `minReplicas: 0`: longest time in seconds for which a request waits for the first replica. Then it
    gets status 503. Set it above the time that a replica needs to start.
    """

    @property
    def decides(self) -> bool:
        """Return True if Convoy itself decides the number of replicas."""
        return self.mode is ScalingMode.CONVOY
