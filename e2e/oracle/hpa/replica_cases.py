"""Random calls of the replica calculator."""

from __future__ import annotations

from random import Random

from e2e.oracle.hpa.draw import LARGE, chance, count, ratio, scaled
from e2e.oracle.hpa.pods import CONTAINERS, Pod, pods, samples
from e2e.oracle.hpa.program import Case

CALLS = (
    "utilization",
    "utilization",
    "resource",
    "pods",
    "object",
    "objectAverage",
    "external",
    "externalAverage",
)
"""Calls of the Go program. The utilization, which has the most rules, is twice as frequent."""
PER_POD = frozenset({"utilization", "resource", "pods"})
METRIC = "metric"
"""Name of every metric that is not a resource."""


def replica_case(rng: Random) -> Case:
    """Return a call of the replica calculator with random arguments."""
    call = rng.choice(CALLS)
    found = pods(rng, 0 if chance(rng, 0.02) else count(rng))
    spec = 0 if chance(rng, 0.05) else len(found) if chance(rng, 0.6) else count(rng)
    case: Case = {
        "call": call,
        "specReplicas": spec,
        "statusReplicas": spec if chance(rng, 0.7) else rng.randrange(20),
        "target": _target(rng, call),
        "toleranceDown": _tolerance(rng),
        "toleranceUp": _tolerance(rng),
        "cpuInitialization": rng.choice((0.0, 120.0, 300.0)),
        "readinessDelay": rng.choice((0.0, 10.0, 30.0)),
        "pods": found,
    }
    if call in ("utilization", "resource"):
        case["resource"] = rng.choice(("cpu", "cpu", "memory"))
        if chance(rng, 0.3):
            case["container"] = CONTAINERS[0] if chance(rng, 0.9) else rng.choice(CONTAINERS)
    if chance(rng, 0.98):
        case["readings"] = {_key(case): _samples(rng, case) if call in PER_POD else _values(rng, case)}
    return case


def _key(case: Case) -> str:
    container = f"/{case['container']}" if case.get("container") else ""
    return f"{case['resource']}{container}" if "resource" in case else METRIC


def _target(rng: Random, call: str) -> int:
    if call == "utilization":
        return rng.choice((1, 50, 80, 99, 100, 101, 150))
    return rng.choice((1, 10, 333, 1000, 2500, 100_000)) if chance(rng, 0.97) else rng.choice(LARGE)


def _tolerance(rng: Random) -> float:
    return rng.choice((0.0, 0.05, 0.1, 0.1, 0.1, 0.33, 1.0, 2.0))


def _samples(rng: Random, case: Case) -> Case:
    found: list[Pod] = case["pods"]
    full = case["target"]
    if case["call"] == "utilization" and found:
        containers = found[0]["containers"]
        full = full * sum(one["requests"].get(case["resource"], 0) for one in containers) // 100
    return {"samples": samples(rng, found, full)}


def _values(rng: Random, case: Case) -> Case:
    average = case["call"] in ("objectAverage", "externalAverage")
    full = case["target"] * (case["statusReplicas"] if average else 1)
    if chance(rng, 0.04):
        return {"values": [rng.choice(LARGE) for _ in range(_number(rng, case))]}
    number = _number(rng, case)
    if chance(rng, 0.05):
        return {"values": [rng.randrange(-2000, 2000) for _ in range(number)]}
    usage = ratio(rng)
    return {"values": [scaled(full, usage) for _ in range(number)]}


def _number(rng: Random, case: Case) -> int:
    if case["call"] in ("object", "objectAverage"):
        return 1
    return rng.choice((0, 1, 1, 1, 2, 3))
