"""Converts `spec.roles[].scaling` to the settings of the autoscaler."""

from __future__ import annotations

from convoy_controllers.autoscale import spec
from convoy_controllers.autoscale.quantity import approximate_float, milli_value
from convoy_crds import servingjob_scaling as api


def settings(scaling: api.Scaling) -> spec.Scaling:
    """Return the settings of the autoscaler for a role in mode Convoy."""
    return spec.Scaling(
        max_replicas=scaling.max_replicas,
        min_replicas=scaling.min_replicas,
        metrics=tuple(_metric(one, scaling.min_replicas) for one in scaling.metrics) or spec.DEFAULT_METRICS,
        behavior=behavior(scaling.behavior) if scaling.behavior else None,
        cooldown_seconds=float(scaling.cooldown_seconds),
    )


def _metric(metric: api.Metric, min_replicas: int) -> spec.Metric:
    activation = milli_value(metric.activation_threshold or 0)
    if metric.pods is not None:
        name, target = metric.pods.metric.name, _target(metric.pods.target)
        # At 0 replicas, activator pods report the waiting requests. So these are a total of the whole job.
        total = min_replicas == 0 and name == api.ScalingMetric.WAITING
        kind = spec.MetricType.EXTERNAL if total else spec.MetricType.PODS
        return spec.Metric(kind, name, target, activation=activation)
    if metric.resource is not None:
        return spec.Metric(
            spec.MetricType.RESOURCE,
            metric.resource.name,
            _target(metric.resource.target),
            activation=activation,
        )
    raise ValueError(f"mode Convoy has no metric of type {metric.type}")


def _target(target: api.MetricTarget) -> spec.Target:
    kind = spec.TargetType(target.type.value)
    if target.average_utilization is not None:
        return spec.Target(kind, target.average_utilization)
    return spec.Target(kind, milli_value(target.average_value or target.value or 0))


def behavior(behavior: api.Behavior) -> spec.Behavior:
    """Return the autoscaler's rules for the speed of changes."""
    return spec.Behavior(
        scale_up=_rules(behavior.scale_up, spec.SCALE_UP),
        scale_down=_rules(behavior.scale_down, spec.SCALE_DOWN),
    )


def _rules(rules: api.ScalingRules | None, default: spec.ScalingRules) -> spec.ScalingRules:
    if rules is None:
        return default
    policies = tuple(
        spec.Policy(spec.PolicyType(one.type.value), one.value, one.period_seconds)
        for one in rules.policies or ()
    )
    return spec.ScalingRules(
        policies=policies or default.policies,
        select_policy=spec.SelectPolicy(rules.select_policy.value),
        stabilization_seconds=rules.stabilization_window_seconds,
        tolerance=None if rules.tolerance is None else approximate_float(rules.tolerance),
    )
