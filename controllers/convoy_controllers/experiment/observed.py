"""The input of every decision about an Experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.faults import FaultState
from convoy_controllers.resources import Resource
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import TERMINAL, Phase


@dataclass(frozen=True, slots=True)
class ChildJob:
    """A TrainingJob or ServingJob that the experiment owns."""

    resource: Resource
    name: str
    uid: str
    status: Mapping[str, Any] = field(default_factory=dict)
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Return True if a TrainingJob has ended. A ServingJob never ends."""
        return self.status.get("phase") in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Return True if a TrainingJob has succeeded."""
        return bool(self.status.get("phase") == Phase.SUCCEEDED)

    @property
    def available(self) -> bool:
        """Return True if the replicas of a ServingJob serve."""
        return self._condition(ConditionType.AVAILABLE).get("status") == "True"

    @property
    def halted(self) -> str:
        """Return the reason why the rollout of a ServingJob is halted; empty if it is not."""
        found = self._condition(ConditionType.PROGRESSING)
        return str(found.get("message", "")) if found.get("status") == "False" else ""

    @property
    def result(self) -> Mapping[str, Any]:
        """Return the result that the job's program has left; empty if it left none."""
        found = self.status.get("result")
        return found if isinstance(found, Mapping) else {}

    @property
    def queue(self) -> str:
        """Return the name of the job's queue; empty without one."""
        placed = self.status.get("placement") or {}
        return str((placed.get("queue") or {}).get("name", ""))

    @property
    def start_time(self) -> datetime | None:
        """Return the time since which the job may run; None while it is suspended or waits in its queue."""
        text = self.status.get("startTime")
        return datetime.fromisoformat(text) if text else None

    @property
    def why(self) -> str:
        """Return the reason and the message of the job's phase."""
        reason, message = self.status.get("reason", ""), self.status.get("message", "")
        return f"{reason}: {message}" if message else str(reason) or "it gives no reason"

    def _condition(self, kind: str) -> Mapping[str, Any]:
        return next((one for one in self.status.get("conditions") or () if one.get("type") == kind), {})


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the experiment, its jobs, and the objects that its spec names."""

    experiment: Experiment
    spec: Mapping[str, Any]
    """The spec as the API server stores it. The hash of the plan is made from it."""
    jobs: Mapping[str, ChildJob] = field(default_factory=dict)
    """All jobs that the experiment owns, by name."""
    busy: frozenset[str] = frozenset()
    """Uids of jobs whose pods still run. The job itself may be deleted already."""
    pods: Mapping[str, tuple[PodView, ...]] = field(default_factory=dict)
    """Pods of each job whose run a perturbation may disturb, by uid of the job."""
    first_steps: Mapping[str, datetime] = field(default_factory=dict)
    """Time at which each of these jobs made its first step, by job uid. Jobs without a step are absent."""
    faults: Mapping[str, FaultState] = field(default_factory=dict)
    """Faults that were ordered for these pods and reported, by id of the fault."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """All valid Engines, by name."""
    store: CheckpointStore | None = None
    """The CheckpointStore that `spec.store` names; None if it does not exist."""
    known_stores: tuple[str, ...] = ()
    """Names of the stores that jobs of this namespace may use."""
    sources: Mapping[str, Experiment] = field(default_factory=dict)
    """The experiments whose tuned parameters arms take over, by name."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """The API server's reasons for refusing jobs at the last attempt, by name of the job."""
