"""Random lives of autoscalers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from e2e.oracle.hpa.draw import chance, count, weighted
from e2e.oracle.hpa.metrics import DEFAULT, external, key, metric, reading
from e2e.oracle.hpa.pods import Pod, pods
from e2e.oracle.hpa.program import Case
from e2e.oracle.hpa.specs import flags, spec

LENGTHS: Mapping[tuple[int, int], float] = {
    (1, 12): 50,
    (12, 40): 40,
    (40, 80): 8,
    (80, 120): 2,
    (250, 300): 0.3,
}
"""Weights by which scenarios get a number of decisions in each range. The longest window has 240 decisions.
"""
MAX_STEPS_WITH_PODS = 40


def scenario(rng: Random) -> Case:
    """Return the settings of an autoscaler, and the inputs of each of its decisions."""
    number = rng.randint(*weighted(rng, LENGTHS))
    with_pods = chance(rng, 0.5)
    steps = _of_pods(rng, min(number, MAX_STEPS_WITH_PODS)) if with_pods else _of_demand(rng, number)
    return {"flags": flags(rng), "steps": list(steps)}


def _of_demand(rng: Random, number: int) -> Iterator[Case]:
    """Yield steps whose only metric is the wanted number of replicas itself."""
    metrics = [external(0, {"type": "AverageValue", "averageValue": "1"})]
    demand = count(rng)
    for index in range(number):
        demand = _next_demand(rng, demand)
        step = _step(rng, index == 0, metrics)
        step["readings"] = {key(metrics[0]): {"values": [demand * 1000]}} if chance(rng, 0.97) else {}
        yield step


def _of_pods(rng: Random, number: int) -> Iterator[Case]:
    """Yield steps with metrics of all types and with pods."""
    metrics = _metrics(rng)
    found: list[Pod] = []
    for index in range(number):
        step = _step(rng, index == 0, metrics)
        if chance(rng, 0.01):
            metrics = _metrics(rng)
            step["spec"] = spec(rng, metrics)
        if index == 0 or chance(rng, 0.3):
            found = step["pods"] = pods(rng, 0 if chance(rng, 0.02) else rng.randint(1, 6))
        step["readings"] = {
            key(one): reading(rng, one, found, len(found))
            for one in metrics or [DEFAULT]
            if chance(rng, 0.93)
        }
        yield step


def _metrics(rng: Random) -> list[Case]:
    """Return some metrics, or none, which means the default."""
    number = 0 if chance(rng, 0.05) else rng.choice((1, 1, 2, 2, 3, 4))
    return [metric(rng, index) for index in range(number)]


def _step(rng: Random, first: bool, metrics: list[Case]) -> Case:
    """Return a step without pods and readings: changes of the settings, changes by others, failed calls."""
    step: Case = {}
    if first or chance(rng, 0.04):
        step["spec"] = spec(rng, metrics)
    if first or chance(rng, 0.03):
        step["specReplicas"] = 0 if chance(rng, 0.05) else count(rng)
    if chance(rng, 0.05):
        step["statusReplicas"] = rng.randrange(20)
    failure = weighted(rng, {"": 97, "failReads": 1, "failWrites": 2})
    if failure:
        step[failure] = True
    return step


def _next_demand(rng: Random, demand: int) -> int:
    """Return the next value of a series that rests, walks and jumps."""
    kind = weighted(rng, {"rest": 50, "walk": 40, "jump": 10, "zero": 3})
    if kind == "walk":
        return max(0, demand + rng.randint(-3, 3))
    if kind == "jump":
        return rng.randrange(10) if chance(rng, 0.7) else rng.randrange(200)
    return 0 if kind == "zero" else demand
