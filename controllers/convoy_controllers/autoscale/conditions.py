"""The conditions of an autoscaled workload, with the types and reasons of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from convoy_controllers.autoscale.spec import Metric, MetricType


class ConditionType(StrEnum):
    """A type of a condition."""

    ABLE_TO_SCALE = "AbleToScale"
    """The number of replicas can be read and changed."""
    SCALING_ACTIVE = "ScalingActive"
    """The metrics give a number of replicas."""
    SCALING_LIMITED = "ScalingLimited"
    """A limit keeps the workload from the number of replicas that the metrics ask for."""
    SCALED_TO_ZERO = "ScaledToZero"
    """The autoscaler has scaled the workload to zero."""


class ConditionReason(StrEnum):
    """A reason of a condition."""

    SUCCEEDED_GET_SCALE = "SucceededGetScale"
    READY_FOR_NEW_SCALE = "ReadyForNewScale"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
    SUCCEEDED_RESCALE = "SucceededRescale"
    FAILED_UPDATE_SCALE = "FailedUpdateScale"
    VALID_METRIC_FOUND = "ValidMetricFound"
    SCALING_DISABLED = "ScalingDisabled"
    FAILED_GET_RESOURCE_METRIC = "FailedGetResourceMetric"
    FAILED_GET_CONTAINER_RESOURCE_METRIC = "FailedGetContainerResourceMetric"
    FAILED_GET_PODS_METRIC = "FailedGetPodsMetric"
    FAILED_GET_OBJECT_METRIC = "FailedGetObjectMetric"
    FAILED_GET_EXTERNAL_METRIC = "FailedGetExternalMetric"
    DESIRED_WITHIN_RANGE = "DesiredWithinRange"
    SCALE_UP_LIMIT = "ScaleUpLimit"
    SCALE_DOWN_LIMIT = "ScaleDownLimit"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    SCALED_TO_ZERO = "ScaledToZero"
    NOT_SCALED_TO_ZERO = "NotScaledToZero"


FAILED_GET = {
    MetricType.RESOURCE: ConditionReason.FAILED_GET_RESOURCE_METRIC,
    MetricType.CONTAINER_RESOURCE: ConditionReason.FAILED_GET_CONTAINER_RESOURCE_METRIC,
    MetricType.PODS: ConditionReason.FAILED_GET_PODS_METRIC,
    MetricType.OBJECT: ConditionReason.FAILED_GET_OBJECT_METRIC,
    MetricType.EXTERNAL: ConditionReason.FAILED_GET_EXTERNAL_METRIC,
}
"""Reason of a failed metric, by type of the metric."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that a decision sets. A condition that a decision does not set keeps its former value."""

    type: ConditionType
    status: bool
    reason: ConditionReason
    message: str


def rescaled(before: int, after: int) -> Condition:
    """Return the condition AbleToScale of a change that is written."""
    return Condition(
        ConditionType.ABLE_TO_SCALE,
        True,
        ConditionReason.SUCCEEDED_RESCALE,
        f"the number of replicas was changed from {before} to {after}",
    )


def metric_failed(metric: Metric, message: str) -> Condition:
    """Return the condition ScalingActive of a metric that has no value."""
    return Condition(
        ConditionType.SCALING_ACTIVE, False, FAILED_GET[metric.type], f"metric {metric.name}: {message}"
    )
