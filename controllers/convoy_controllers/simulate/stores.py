"""Checkpoint stores of a simulated cluster. Each store that a job names exists and works."""

from __future__ import annotations

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.trainingjob import TrainingJob


def store_of(job: TrainingJob) -> CheckpointStore | None:
    """Return the store that a job names; None if the job names none."""
    name = job.spec.checkpoint.tiers.store
    return None if name is None else store_named(name)


def store_named(name: str) -> CheckpointStore:
    """Return the store with a name."""
    s3 = {"bucket": "simulated", "credentialsSecret": "simulated"}
    spec = {"s3": s3, "allowedNamespaces": ["*"]}
    return CheckpointStore.model_validate({"metadata": {"name": name}, "spec": spec})
