"""Reasons about the number of replicas that the autoscaler of a ServingJob chooses. The names are those of a
HorizontalPodAutoscaler.
"""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class ScalingReasons:
    """Reasons about the number of replicas that the autoscaler of a ServingJob chooses."""

    SUCCEEDED_GET_SCALE = Reason("SucceededGetScale", "role {role}: the number of replicas can be changed")
    READY_FOR_NEW_SCALE = Reason(
        "ReadyForNewScale", "role {role}: no earlier recommendation holds back the number of replicas"
    )
    SCALE_UP_STABILIZED = Reason(
        "ScaleUpStabilized",
        "role {role}: the metrics ask for more replicas, but asked for fewer within "
        "behavior.scaleUp.stabilizationWindowSeconds",
    )
    SCALE_DOWN_STABILIZED = Reason(
        "ScaleDownStabilized",
        "role {role}: the metrics ask for fewer replicas, but asked for more within "
        "behavior.scaleDown.stabilizationWindowSeconds (300 s by default)",
    )
    SUCCEEDED_RESCALE = Reason("SucceededRescale", "role {role}: {why}")
    VALID_METRIC_FOUND = Reason("ValidMetricFound", "role {role}: its metrics give a number of replicas")
    REPLICAS_STARTING = Reason(
        "ReplicasStarting", "role {role}: its replicas are starting, so its metrics have no values yet"
    )
    FAILED_GET_RESOURCE_METRIC = Reason(
        "FailedGetResourceMetric", "role {role}: {why}. The number of replicas stays as it is", warning=True
    )
    FAILED_GET_PODS_METRIC = Reason(
        "FailedGetPodsMetric", "role {role}: {why}. The number of replicas stays as it is", warning=True
    )
    FAILED_GET_EXTERNAL_METRIC = Reason(
        "FailedGetExternalMetric", "role {role}: {why}. The number of replicas stays as it is", warning=True
    )
    DESIRED_WITHIN_RANGE = Reason(
        "DesiredWithinRange", "role {role}: no limit holds back the number of replicas"
    )
    SCALE_UP_LIMIT = Reason(
        "ScaleUpLimit",
        "role {role}: the metrics ask for more replicas than one step may add (scaling.behavior.scaleUp)",
    )
    SCALE_DOWN_LIMIT = Reason(
        "ScaleDownLimit",
        "role {role}: the metrics ask for fewer replicas than one step may leave "
        "(scaling.behavior.scaleDown)",
    )
    TOO_MANY_REPLICAS = Reason(
        "TooManyReplicas", "role {role}: the metrics ask for more replicas than scaling.maxReplicas={limit}"
    )
    TOO_FEW_REPLICAS = Reason(
        "TooFewReplicas", "role {role}: the metrics ask for fewer replicas than scaling.minReplicas={limit}"
    )
    SUCCESSFUL_RESCALE = Reason("SuccessfulRescale", "role {role}: {why}")


ABLE_TO_SCALE = (
    ScalingReasons.SUCCEEDED_GET_SCALE,
    ScalingReasons.READY_FOR_NEW_SCALE,
    ScalingReasons.SCALE_UP_STABILIZED,
    ScalingReasons.SCALE_DOWN_STABILIZED,
    ScalingReasons.SUCCEEDED_RESCALE,
)
"""Reasons of the condition AbleToScale."""
SCALING_ACTIVE = (
    ScalingReasons.VALID_METRIC_FOUND,
    ScalingReasons.REPLICAS_STARTING,
    ScalingReasons.FAILED_GET_RESOURCE_METRIC,
    ScalingReasons.FAILED_GET_PODS_METRIC,
    ScalingReasons.FAILED_GET_EXTERNAL_METRIC,
)
"""Reasons of the condition ScalingActive."""
SCALING_LIMITED = (
    ScalingReasons.DESIRED_WITHIN_RANGE,
    ScalingReasons.SCALE_UP_LIMIT,
    ScalingReasons.SCALE_DOWN_LIMIT,
    ScalingReasons.TOO_MANY_REPLICAS,
    ScalingReasons.TOO_FEW_REPLICAS,
)
"""Reasons of the condition ScalingLimited."""
