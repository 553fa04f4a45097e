"""Random metrics of an autoscaler, and random values of them."""

from __future__ import annotations

from random import Random
from typing import Any

from convoy_controllers.autoscale.quantity import milli_value
from e2e.oracle.hpa.draw import chance, odd_value, quantity, ratio, scaled
from e2e.oracle.hpa.pods import CONTAINERS, Pod, samples
from e2e.oracle.hpa.program import Case

DEFAULT: Case = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
"""The metric of an autoscaler that names none."""
_MILLI = (1, 333, 500, 1000, 1500, 2000, 100_000, 2_000_000)
"""Targets in thousandths."""


def metric(rng: Random, index: int) -> Case:
    """Return a metric in the form of HorizontalPodAutoscaler v2."""
    kind = rng.choice(("Resource", "ContainerResource", "Pods", "Object", "External"))
    named = {"metric": {"name": f"m{index}"}}
    if kind == "External":
        return external(index, _either(rng))
    if kind == "Pods":
        return {"type": kind, "pods": {**named, "target": _average(rng)}}
    if kind == "Object":
        described = {"kind": "Service", "name": "object", "apiVersion": "v1"}
        return {"type": kind, "object": {**named, "describedObject": described, "target": _either(rng)}}
    target = _average(rng) if chance(rng, 0.4) else _utilization(rng)
    found = {"name": rng.choice(("cpu", "cpu", "memory")), "target": target}
    if kind == "Resource":
        return {"type": kind, "resource": found}
    container = CONTAINERS[0] if chance(rng, 0.9) else rng.choice(CONTAINERS)
    return {"type": kind, "containerResource": {**found, "container": container}}


def external(index: int, target: Case) -> Case:
    """Return a metric of type External."""
    return {"type": "External", "external": {"metric": {"name": f"m{index}"}, "target": target}}


def _average(rng: Random) -> Case:
    return {"type": "AverageValue", "averageValue": quantity(rng, rng.choice(_MILLI))}


def _utilization(rng: Random) -> Case:
    return {"type": "Utilization", "averageUtilization": rng.choice((1, 30, 50, 80, 100, 120))}


def _either(rng: Random) -> Case:
    if chance(rng, 0.5):
        return _average(rng)
    return {"type": "Value", "value": quantity(rng, rng.choice(_MILLI))}


def source(found: Case) -> Case:
    """Return the part of a metric that depends on its type."""
    kind: str = found["type"]
    part: Case = found[kind[0].lower() + kind[1:]]
    return part


def key(found: Case) -> str:
    """Return the key of a metric in the readings of a case."""
    part = source(found)
    if "metric" in part:
        return str(part["metric"]["name"])
    return f"{part['name']}/{part['container']}" if "container" in part else str(part["name"])


def reading(rng: Random, found: Case, pods: list[Pod], replicas: int) -> Case:
    """Return a random value of a metric, often near its target. `replicas`: the expected number of pods."""
    part = source(found)
    target: dict[str, Any] = part["target"]
    if "averageUtilization" in target:
        containers = [one for pod in pods[:1] for one in pod["containers"]]
        requested = sum(one["requests"].get(part["name"], 0) for one in containers)
        return {"samples": samples(rng, pods, requested * int(target["averageUtilization"]) // 100)}
    full = milli_value(target["averageValue" if "averageValue" in target else "value"])
    if found["type"] not in ("Object", "External"):
        return {"samples": samples(rng, pods, full)}
    if "averageValue" in target:
        full *= replicas
    number = 1 if found["type"] == "Object" else rng.choice((0, 1, 1, 1, 1, 2, 3))
    usage = ratio(rng)
    values = [odd_value(rng) if chance(rng, 0.01) else scaled(full, usage) for _ in range(number)]
    return {"values": values}
