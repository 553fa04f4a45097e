"""Convoy's results for the cases, in the form of the Go program's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.autoscale.conditions import Condition
from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.decision import Decision
from convoy_controllers.autoscale.failure import Failure, MetricError
from convoy_controllers.autoscale.proposals import Proposal
from convoy_controllers.autoscale.quantity import approximate_float, milli_value
from convoy_controllers.autoscale.replicas import Calculation, ReplicaCalculator
from convoy_controllers.autoscale.samples import (
    Container,
    Observed,
    Pod,
    Readiness,
    Reading,
    Sample,
    Unavailable,
)
from convoy_controllers.autoscale.spec import (
    DEFAULT_METRICS,
    PER_POD,
    SCALE_DOWN,
    SCALE_UP,
    Behavior,
    Metric,
    MetricType,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
    SelectPolicy,
    Settings,
    Target,
    TargetType,
    Tolerances,
)
from convoy_controllers.autoscale.state import State
from e2e.oracle.hpa.metrics import source
from e2e.oracle.hpa.program import Case, Result

START = 946_684_800.0
"""Time at which each scenario starts: the start of Go's virtual time, in Unix seconds."""
_CALLS = {
    "utilization": (MetricType.RESOURCE, TargetType.UTILIZATION),
    "resource": (MetricType.RESOURCE, TargetType.AVERAGE_VALUE),
    "pods": (MetricType.PODS, TargetType.AVERAGE_VALUE),
    "object": (MetricType.OBJECT, TargetType.VALUE),
    "objectAverage": (MetricType.OBJECT, TargetType.AVERAGE_VALUE),
    "external": (MetricType.EXTERNAL, TargetType.VALUE),
    "externalAverage": (MetricType.EXTERNAL, TargetType.AVERAGE_VALUE),
}


def replicas(case: Case) -> Result:
    """Return the result of the replica calculator."""
    kind, target = _CALLS[case["call"]]
    container = case.get("container", "")
    metric = Metric(
        MetricType.CONTAINER_RESOURCE if container else kind,
        case.get("resource", "metric"),
        Target(target, case["target"]),
        container,
    )
    calculator = ReplicaCalculator(
        case["specReplicas"],
        case["statusReplicas"],
        _pods(case["pods"], START),
        Tolerances(case["toleranceDown"], case["toleranceUp"]),
        _settings({"tolerance": 0.0, "downscaleStabilization": 0, **case}),
        START,
    )
    try:
        found = calculator.calculate(metric, _reading(metric, case.get("readings", {}), START))
    except MetricError as error:
        return {"error": error.failure.kind.value}
    if target is TargetType.UTILIZATION:
        return {"replicas": found.replicas, "usage": found.average, "utilization": found.current}
    return {"replicas": found.replicas, "usage": found.current}


def decisions(case: Case) -> Result:
    """Return the decision of each step of a scenario."""
    scaling, state, replicas = Scaling(1), State(), 0
    pods: list[Case] = []
    conditions: dict[str, list[str]] = {}
    found = []
    for index, step in enumerate(case["steps"]):
        now = START + case["flags"]["syncPeriod"] * (index + 1)
        if "spec" in step:
            scaling = _scaling(step["spec"], _settings(case["flags"]))
        replicas = step.get("specReplicas", replicas)
        pods = step.get("pods", pods)
        if step.get("failReads"):
            found.append({"replicas": replicas})
            continue
        observed = Observed(
            replicas,
            step.get("statusReplicas", replicas),
            _pods(pods, now),
            tuple(_reading(metric, step["readings"], now) for metric in scaling.metrics),
        )
        decision = decide(scaling, observed, state, now)
        if step.get("failWrites") and decision.changes:
            decision = decision.not_written("refused")
        state, replicas = decision.state, decision.desired
        conditions.update((one.type.value, _condition(one)) for one in decision.conditions)
        found.append(_decision(decision, conditions))
    return found


def _decision(decision: Decision, conditions: Mapping[str, list[str]]) -> Result:
    made: dict[str, Any] = {"replicas": decision.desired, "conditions": dict(conditions)}
    if decision.changes:
        made["reason"] = decision.reason.value
    if decision.proposals:
        made["metrics"] = [_current(one) for one in decision.proposals]
    return made


def _condition(condition: Condition) -> list[str]:
    return [str(condition.status), condition.reason.value]


def _current(proposal: Proposal) -> dict[str, int | None] | None:
    if isinstance(proposal.result, Failure):
        return None
    found: Calculation = proposal.result
    match proposal.metric.target.type:
        case TargetType.UTILIZATION:
            return {"utilization": found.current, "averageValue": found.average}
        case TargetType.VALUE:
            return {"value": found.current}
        case TargetType.AVERAGE_VALUE:
            return {"averageValue": found.current}


def _settings(flags: Case) -> Settings:
    return Settings(
        flags["tolerance"],
        int(flags["downscaleStabilization"]),
        flags["cpuInitialization"],
        flags["readinessDelay"],
    )


def _scaling(spec: Case, settings: Settings) -> Scaling:
    behavior = None
    if (given := spec.get("behavior")) is not None:
        up, down = given.get("scaleUp", {}), given.get("scaleDown", {})
        behavior = Behavior(_rules(up, SCALE_UP), _rules(down, SCALE_DOWN))
    return Scaling(
        spec["maxReplicas"],
        spec.get("minReplicas", 1),
        tuple(map(_metric, spec.get("metrics", ()))) or DEFAULT_METRICS,
        behavior,
        settings=settings,
    )


def _rules(given: Case, default: ScalingRules) -> ScalingRules:
    policies = tuple(
        Policy(PolicyType(one["type"]), one["value"], one["periodSeconds"])
        for one in given.get("policies", ())
    )
    return ScalingRules(
        policies or default.policies,
        SelectPolicy(given.get("selectPolicy", "Max")),
        given.get("stabilizationWindowSeconds"),
        approximate_float(given["tolerance"]) if "tolerance" in given else None,
    )


def _metric(given: Case) -> Metric:
    part = source(given)
    target = part["target"]
    kind = TargetType(target["type"])
    value = (
        target["averageUtilization"]
        if kind is TargetType.UTILIZATION
        else milli_value(target.get("averageValue", target.get("value")))
    )
    name = part["metric"]["name"] if "metric" in part else part["name"]
    return Metric(MetricType(given["type"]), name, Target(kind, value), part.get("container", ""))


def _pods(given: Iterable[Case], now: float) -> tuple[Pod, ...]:
    return tuple(_pod(one, now) for one in given)


def _pod(given: Case, now: float) -> Pod:
    containers = tuple(Container(one["name"], one["requests"]) for one in given["containers"])
    return Pod(
        given["name"],
        given["phase"],
        given.get("deleting", False),
        Readiness(given["ready"], now - given["readyAge"]) if given["ready"] else None,
        None if given["startAge"] is None else now - given["startAge"],
        containers,
        _whole(containers, given["requests"]) if given.get("requests") else None,
    )


def _whole(containers: Iterable[Container], requests: Mapping[str, int]) -> dict[str, int]:
    """Return the requests of a pod that sets `requests` for the whole pod. The containers request the other
    resources.
    """
    summed = Counter[str]()
    for one in containers:
        summed.update(one.requests)
    return {**summed, **requests}


def _reading(metric: Metric, readings: Mapping[str, Case], now: float) -> Reading:
    key = f"{metric.name}/{metric.container}" if metric.container else metric.name
    if key not in readings:
        return Unavailable("no metrics returned")
    found = readings[key]
    if metric.type not in PER_POD:
        return tuple(found["values"])
    return {
        name: Sample(one["value"], now - one["age"], one["window"]) for name, one in found["samples"].items()
    }
