"""The decisions of a running operator, as a case for the real controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy_controllers.autoscale import samples
from convoy_controllers.autoscale.spec import SYNC_SECONDS, Settings
from convoy_controllers.servingjob.scaling.memory import Sync
from e2e.oracle.hpa.program import Case

_DEFAULT = Settings()
FLAGS = {
    "syncPeriod": SYNC_SECONDS,
    "downscaleStabilization": float(_DEFAULT.downscale_stabilization_seconds),
    "tolerance": _DEFAULT.tolerance,
    "cpuInitialization": _DEFAULT.cpu_initialization_seconds,
    "readinessDelay": _DEFAULT.initial_readiness_delay_seconds,
}
"""Flags of a controller manager that uses Convoy's settings."""


def case(scaling: dict[str, Any], syncs: Sequence[Sync]) -> Case:
    """Return consecutive decisions about one role as the life of one autoscaler. `scaling` is the role's
    field of that name. Times become ages, because the decisions of a case are exactly 15 s apart.
    """
    steps = [_step(sync) for sync in syncs]
    fields = ("minReplicas", "maxReplicas", "metrics", "behavior")
    steps[0]["spec"] = {name: scaling[name] for name in fields if name in scaling}
    steps[0]["specReplicas"] = syncs[0].observed.spec_replicas
    return {"flags": FLAGS, "steps": steps}


def _step(sync: Sync) -> Case:
    seen = sync.observed
    readings = {
        metric.name: found
        for metric, reading in zip(sync.scaling.metrics, seen.readings, strict=True)
        if (found := _reading(reading, sync.at)) is not None
    }
    return {
        "statusReplicas": seen.status_replicas,
        "pods": [_pod(pod, sync.at) for pod in seen.pods],
        "readings": readings,
    }


def _pod(pod: samples.Pod, now: float) -> Case:
    return {
        "name": pod.name,
        "phase": pod.phase,
        "deleting": pod.deleting,
        "ready": pod.readiness.status if pod.readiness else "",
        "readyAge": now - pod.readiness.since if pod.readiness else 0.0,
        "startAge": None if pod.started is None else now - pod.started,
        "containers": [{"name": one.name, "requests": dict(one.requests)} for one in pod.containers],
    }


def _reading(reading: samples.Reading, now: float) -> Case | None:
    """Return the value of a metric; None if it has none."""
    if isinstance(reading, samples.Unavailable):
        return None
    if isinstance(reading, tuple):
        return {"values": list(reading)}
    return {
        "samples": {
            name: {"value": one.value, "age": now - one.timestamp, "window": one.window}
            for name, one in reading.items()
        }
    }
