"""Random settings of an autoscaler, in the form of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from random import Random

from e2e.oracle.hpa.draw import TOLERANCES, chance, weighted
from e2e.oracle.hpa.program import Case

PERIODS = (1, 14, 15, 16, 29, 30, 31, 45, 60, 61, 120, 300, 900, 1800)
"""Periods of policies in seconds. The autoscaler decides every 15 seconds."""
WINDOWS = (0, 1, 14, 15, 16, 30, 31, 60, 61, 120, 299, 300, 301, 600, 3600)
"""Stabilization windows in seconds."""


def spec(rng: Random, metrics: list[Case]) -> Case:
    """Return the settings of an autoscaler with these metrics."""
    smallest = rng.choice((1, 1, 1, 2, 5))
    made: Case = {"maxReplicas": smallest + rng.choice((0, 1, 5, 10, 50, 500))}
    if metrics:
        made["metrics"] = metrics
    if smallest > 1 or chance(rng, 0.5):
        made["minReplicas"] = smallest
    if chance(rng, 0.7):
        made["behavior"] = {name: _rules(rng) for name in ("scaleUp", "scaleDown") if chance(rng, 0.8)}
    return made


def flags(rng: Random) -> Case:
    """Return flags of the controller manager."""
    return {
        "syncPeriod": 15.0,
        "downscaleStabilization": rng.choice((300.0, 300.0, 300.0, 0.0, 15.0, 60.0)),
        "tolerance": rng.choice((0.1, 0.1, 0.1, 0.0, 0.25)),
        "cpuInitialization": rng.choice((300.0, 120.0)),
        "readinessDelay": rng.choice((30.0, 10.0)),
    }


def _rules(rng: Random) -> Case:
    rules: Case = {}
    if chance(rng, 0.6):
        rules["stabilizationWindowSeconds"] = rng.choice(WINDOWS)
    if chance(rng, 0.6):
        rules["selectPolicy"] = weighted(rng, {"Max": 4, "Min": 4, "Disabled": 1})
    if chance(rng, 0.8):
        rules["policies"] = [_policy(rng) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    if chance(rng, 0.3):
        rules["tolerance"] = rng.choice(TOLERANCES)
    return rules


def _policy(rng: Random) -> Case:
    kind = rng.choice(("Percent", "Pods"))
    values = (1, 10, 33, 50, 99, 100, 101, 200, 900) if kind == "Percent" else (1, 2, 3, 4, 10, 100)
    value = rng.choice(values) if chance(rng, 0.99) else 2**31 - 1
    return {"type": kind, "value": value, "periodSeconds": rng.choice(PERIODS)}
