"""Random pods and samples of their metrics."""

from __future__ import annotations

from random import Random
from typing import Any

from e2e.oracle.hpa.draw import chance, near, odd_value, ratio, scaled, weighted

CONTAINERS = ("app", "proxy", "sidecar")
RESOURCES = ("cpu", "memory")

Pod = dict[str, Any]
Samples = dict[str, dict[str, Any]]


def pods(rng: Random, number: int) -> list[Pod]:
    """Return pods. In a third of the cases all of them are in order."""
    healthy = chance(rng, 0.35)
    containers = rng.choice((1, 1, 2, 3))
    request = rng.choice((1, 100, 250, 1000, 1001, 4000))
    return [_pod(rng, f"p{index}", healthy, (containers, request)) for index in range(number)]


def _pod(rng: Random, name: str, healthy: bool, shape: tuple[int, int]) -> Pod:
    containers, request = shape
    pod: Pod = {
        "name": name,
        "phase": "Running",
        "ready": "True",
        "readyAge": 1000.0,
        "startAge": 1010.0,
        "containers": [_container(rng, index, request) for index in range(containers)],
    }
    if chance(rng, 0.1):
        pod["requests"] = {resource: request for resource in RESOURCES if chance(rng, 0.9)}
    if not healthy:
        pod["phase"] = weighted(rng, {"Running": 30, "Pending": 3, "Failed": 2, "Succeeded": 1, "Unknown": 1})
        pod["ready"] = weighted(rng, {"True": 14, "False": 4, "Unknown": 1, "": 1})
        pod["deleting"] = chance(rng, 0.06)
        pod["startAge"] = None if chance(rng, 0.05) else near(rng, (0, 30, 120, 300, 310), 600)
        pod["readyAge"] = near(rng, (0, 30, 60, 270, 290, 300), 600)
    return pod


def _container(rng: Random, index: int, request: int) -> dict[str, Any]:
    requests = {
        resource: request if chance(rng, 0.9) else rng.randrange(2 * request)
        for resource in RESOURCES
        if chance(rng, 0.995)
    }
    return {"name": CONTAINERS[index], "sidecar": index > 0 and chance(rng, 0.5), "requests": requests}


def samples(rng: Random, found: list[Pod], full: int) -> Samples:
    """Return samples for most of the pods. `full` is the value of a pod that is at its target."""
    usage, equal = ratio(rng), chance(rng, 0.5)
    complete = chance(rng, 0.5)
    names = [str(pod["name"]) for pod in found if complete or chance(rng, 0.85)]
    if chance(rng, 0.03):
        names.append("stranger")
    return {
        name: _sample(rng, _value(rng, full, usage if equal else usage * rng.uniform(0.3, 1.7)))
        for name in names
    }


def _value(rng: Random, full: int, usage: float) -> int:
    return odd_value(rng) if chance(rng, 0.003) else scaled(full, usage)


def _sample(rng: Random, value: int) -> dict[str, Any]:
    return {
        "value": value,
        "age": near(rng, (0, 15, 30, 60), 120),
        "window": rng.choice((0.0, 15.0, 30.0, 60.0)),
    }
