"""Computes times and costs of a rollout from the audit log. This module does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from e2e.bench.rig.audit import Entry, phases, writes
from e2e.bench.rig.jobs import Shape

RUNNING = "Running"


@dataclass(frozen=True)
class Rollout:
    """Times of the stages of a rollout, and its writes.

    Times are seconds from the first request that creates a job to the last response of a stage. A time is
    None if the stage did not complete for all pods or jobs.
    """

    created: float | None
    bound: float | None
    up: float | None
    """Seconds until the kubelets had reported all pods as Running."""
    running: float | None
    """Seconds until all TrainingJobs were Running. None for other kinds of jobs."""
    writes_per_pod: float
    surplus: int
    """Number of created pods beyond those that the jobs need."""


def rollout(entries: Sequence[Entry], shape: Shape, kind: str, users: Collection[str]) -> Rollout:
    """Return the rollout of the jobs of the resource `kind`. Only writes of `users` count."""
    start = min((entry.received for entry in entries if entry.is_a("create", kind)), default=None)
    if start is None:
        return Rollout(None, None, None, None, 0.0, 0)

    def since(times: Collection[float], wanted: int) -> float | None:
        return max(times) - start if len(times) >= wanted else None

    created = [entry.answered for entry in entries if entry.is_a("create", "pods")]
    bound = [entry.answered for entry in entries if entry.is_a("create", "pods", "binding")]
    up: dict[str, float] = {}
    for entry in entries:
        if entry.is_a("patch", "pods", "status") and entry.name not in up:
            up[entry.name] = entry.answered
    running = running_since(entries)
    return Rollout(
        created=since(created, shape.pods),
        bound=since(bound, shape.pods),
        up=since(up.values(), shape.pods),
        running=since(running.values(), shape.jobs),
        writes_per_pod=len(writes(entries, users)) / shape.pods,
        surplus=max(0, len(created) - shape.pods),
    )


def running_since(entries: Sequence[Entry], after: float = 0.0) -> dict[str, float]:
    """Return the first Unix time after `after` at which each job became Running, by job name.

    Jobs whose last phase is not Running are left out.
    """
    found = {}
    for job, reported in phases(entries).items():
        first = next((at for at, phase in reported if phase == RUNNING and at > after), None)
        if first is not None and reported[-1][1] == RUNNING:
            found[job] = first
    return found
