"""A fake client of the command line, and a ServingJob for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from convoy.client import NotFound
from convoy_crds.servingjob import ServingJob


class NoJobs:
    """A collection without objects."""

    def get(self, name: str) -> Any:
        raise NotFound(f"{name} not found", 404)

    def list(self, **_: Any) -> list[Any]:
        return []


def client(training: Any = None, serving: Any = None, experiments: Any = None) -> Any:
    """Return a client with these collections. A missing collection has no objects."""
    none = NoJobs()
    return SimpleNamespace(
        namespace="team",
        training_jobs=training or none,
        serving_jobs=serving or none,
        experiments=experiments or none,
    )


def serving_job(**changes: Any) -> ServingJob:
    """Return a ServingJob `llm` that runs revision `two` in both replicas. `changes` replace fields of the
    spec's `rollout` and of the status.
    """
    rollout = changes.pop("rollout", {})
    return ServingJob.model_validate(
        {
            "metadata": {"name": "llm", "generation": changes.pop("generation", 3)},
            "spec": {
                "replicas": 2,
                "roles": [{"name": "server", "engine": {"name": "lm"}}],
                "rollout": rollout,
                "suspend": changes.pop("suspend", False),
            },
            "status": {
                "observedGeneration": 3,
                "ready": "2/2",
                "reason": "RolloutComplete",
                "currentRevision": "two",
                "updateRevision": "two",
                "revisions": [{"name": "two", "number": 2}, {"name": "one", "number": 1}],
                "roles": [
                    {
                        "name": "server",
                        "desired": 2,
                        "replicas": 2,
                        "ready": 2,
                        "updated": 2,
                        "updatedReady": 2,
                    }
                ],
                "conditions": [condition()],
                **changes,
            },
        }
    )


def condition(
    status: str = "True",
    reason: str = "RolloutComplete",
    message: str = "all replicas run revision two",
    kind: str = "Progressing",
) -> dict[str, str]:
    """Return a condition, by default Progressing of a complete rollout."""
    since = "2026-01-01T11:59:00Z"
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since
    }  # fmt: skip
