"""What the work queue holds: the name of one object to reconcile."""

from __future__ import annotations

from typing import NamedTuple

TRAINING_JOB = "TrainingJob"
ENGINE = "Engine"
CHECKPOINT_STORE = "CheckpointStore"


class Key(NamedTuple):
    """One parent object."""

    kind: str
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"
