"""Reads the cases of this folder and builds the autoscaler's input from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy_controllers.autoscale.arithmetic import MAX_INT64
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
    CPU,
    SCALE_DOWN,
    SCALE_UP,
    Behavior,
    Metric,
    MetricType,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
    Settings,
    Target,
    TargetType,
)

NOW = 1_000_000.0
SETTINGS = Settings(cpu_initialization_seconds=120, initial_readiness_delay_seconds=10)
"""The settings of upstream's tests of the replica calculator."""
PHASES = {"p": "Pending", "f": "Failed"}
Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    """Return the cases of a file as parameters of a test."""
    found = yaml.load((Path(__file__).parent / f"{name}_cases.yaml").read_bytes(), yaml.CSafeLoader)
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in found]


def number(value: int | str) -> int:
    """Return a number of a case; `max` is the largest int64."""
    return MAX_INT64 if value == "max" else int(value)


def pods_of(case: Case) -> tuple[Pod, ...]:
    """Return the pods of a case: one for each letter, at least as many as replicas."""
    count = max(case["replicas"], len(case.get("pods", "")))
    letters = case.get("pods", "").ljust(count, "r")
    requests = case.get("requests", 1000)
    each = requests if isinstance(requests, list) else [requests] * count
    return tuple(pod(f"pod-{i}", letters[i], each[i] if i < len(each) else None) for i in range(count))


def pod(name: str, letter: str, request: int | None) -> Pod:
    """Return a pod by its letter; the letters are explained in resource_cases.yaml."""
    asked = {} if request is None else {"cpu": request}
    return Pod(
        name,
        phase=PHASES.get(letter, "Running"),
        deleting=letter == "d",
        readiness=Readiness("True" if letter in "rh" else "False", 0.0),
        started=NOW if letter in "hn" else 0.0,
        containers=(Container("c1", asked), Container("c2", asked)),
    )


def policies_of(found: list[list[Any]]) -> tuple[Policy, ...]:
    """Return the policies of a case: a number of pods or a text with %, and a period."""
    return tuple(
        Policy(PolicyType.PERCENT, int(value[:-1]), period)
        if isinstance(value, str)
        else Policy(PolicyType.PODS, value, period)
        for value, period in found
    )


def values_of(case: Case) -> tuple[Metric, Reading]:
    """Return a metric of type Pods, Object or External, and its values."""
    type_ = MetricType(case["type"])
    kind, name = (TargetType.VALUE, "value") if "value" in case else (TargetType.AVERAGE_VALUE, "average")
    metric = Metric(type_, "qps", Target(kind, number(case[name])))
    if "unavailable" in case:
        return metric, Unavailable(case["unavailable"])
    values = tuple(number(one) for one in case["values"])
    if type_ is MetricType.PODS:
        return metric, {f"pod-{i}": Sample(one) for i, one in enumerate(values)}
    return metric, values


def use_of(case: Case) -> tuple[Metric, Reading]:
    """Return a metric of processor time, and a sample for each pod with a use."""
    container = case.get("container", "")
    type_ = MetricType.CONTAINER_RESOURCE if container else MetricType.RESOURCE
    metric = Metric(type_, CPU, Target(TargetType.UTILIZATION, case["cpu"]), container)
    if "unavailable" in case:
        return metric, Unavailable(case["unavailable"])
    usage = case["usage"]
    named = usage if isinstance(usage, dict) else {f"pod-{i}": one for i, one in enumerate(usage)}
    found = {name: _used(one, container) for name, one in named.items()}
    return metric, {name: Sample(value, 0.0, 60.0) for name, value in found.items() if value is not None}


def sync_of(case: Case) -> tuple[Scaling, Observed]:
    """Return the settings and the input of a whole decision."""
    found = [use_of(one) if "cpu" in one else values_of(one) for one in case["metrics"]]
    behavior = None
    if "up" in case or "tolerance" in case:
        down_tolerance, up_tolerance = case.get("tolerance", (None, None))
        up = policies_of(case["up"]) if "up" in case else SCALE_UP.policies
        behavior = Behavior(
            ScalingRules(up, tolerance=up_tolerance),
            ScalingRules(SCALE_DOWN.policies, tolerance=down_tolerance),
        )
    least, most = case["range"]
    scaling = Scaling(most, least, tuple(metric for metric, _ in found), behavior, settings=SETTINGS)
    replicas = case["replicas"]
    readings = tuple(reading for _, reading in found)
    return scaling, Observed(replicas, case.get("status", replicas), pods_of(case), readings)


def _used(usage: int | list[int], container: str) -> int | None:
    """Return the use of a container, or of both. A number is the use of each."""
    each = usage if isinstance(usage, list) else [usage, usage]
    if not container:
        return sum(each)
    index = ("c1", "c2").index(container)
    return each[index] if index < len(each) else None
