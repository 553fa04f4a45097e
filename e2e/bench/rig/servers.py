"""Computes times of ServingJobs from the audit log. This module does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from e2e.bench.rig.audit import Entry


def complete_since(entries: Iterable[Entry], after: float = 0.0) -> dict[str, float]:
    """Return the first Unix time after `after` at which each job's rollout was complete, by job name.

    The operator then writes the revision that runs in all replicas.
    """
    found: dict[str, float] = {}
    for entry in entries:
        if entry.resource != "servingjobs" or entry.subresource != "status" or not entry.succeeded:
            continue
        status = entry.body.get("status") or {}
        if status.get("currentRevision") and entry.answered > after:
            found.setdefault(entry.name, entry.answered)
    return found


def job_of(pod: str) -> str:
    """Return the job of a pod with this name: JOB-ROLE-REPLICA-SLOT."""
    return pod.rsplit("-", 3)[0]


def reactions(entries: Sequence[Entry], causes: Mapping[str, float]) -> list[float]:
    """Return the seconds from each cause until the operator requested the creation of a pod of the same job.

    `causes` has the Unix time of each cause, by job name. Jobs without a reaction are left out.
    """
    found: dict[str, float] = {}
    for entry in entries:
        job = job_of(entry.name) if entry.is_a("create", "pods") else ""
        if job in causes and entry.received >= causes[job]:
            found[job] = min(found.get(job, entry.received), entry.received)
    return [at - causes[job] for job, at in found.items()]
