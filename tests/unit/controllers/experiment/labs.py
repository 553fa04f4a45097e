"""A tiny API server with one Experiment, for tests of its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.unit.crds.experiments import make_experiment

from convoy_controllers.children import Check, Create, Delete
from convoy_controllers.experiment.observed import ChildJob, Observed
from convoy_controllers.experiment.plan import plan
from convoy_controllers.plan import Plan
from convoy_controllers.resources import TRAINING_JOBS
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.testing.builders import Crash, make_engine, make_store
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_data import ExperimentData, decompressed
from convoy_crds.terms import ENGINE_ANALYSIS, ENGINE_LOAD, ENGINE_SIMULATION

OPEN = {"type": "object", "additionalProperties": True}
VERDICT = [0, None, "Supported", 1.5, 1.0, 2.0, 0.01, 0.5, 3, 0]


class Lab:
    """One experiment, its jobs, and what its plans read. Each `step` is one reconcile."""

    def __init__(self, experiment: Experiment | None = None, **spec: Any) -> None:
        self.experiment = experiment if experiment is not None else make_experiment(**spec)
        self.raw = self.experiment.spec.to_dict()
        self.now: datetime = EPOCH
        self.engines = {
            name: make_engine(name, paramsSchema=OPEN)
            for name in (ENGINE_ANALYSIS, ENGINE_SIMULATION, ENGINE_LOAD, "gpt")
        }
        self.store: Any = make_store()
        self.jobs: dict[str, ChildJob] = {}
        self.manifests: dict[str, Mapping[str, Any]] = {}
        """Manifest of each job that was ever created, by name."""
        self.sources: dict[str, Experiment] = {}
        self.busy: set[str] = set()
        self.refused: dict[str, Refusal] = {}
        self.crash: Callable[[], bool] = lambda: False
        """Returns True if the operator crashes before its next write."""
        self.lingering = False
        """True if a deleted job stays until `finish_deletions`."""
        self.created: list[str] = []
        self.events: list[str] = []
        self._uids = 0

    @property
    def status(self) -> Any:
        """The stored status."""
        return self.experiment.status

    @property
    def active(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return [name for name, job in self.jobs.items() if not job.ended]

    def plan(self) -> Plan:
        """Return the plan for the present state."""
        observed = Observed(
            experiment=self.experiment,
            spec=self.raw,
            jobs=dict(self.jobs),
            busy=frozenset(self.busy),
            engines=self.engines,
            store=self.store,
            known_stores=("s3",),
            sources=self.sources,
            refused=self.refused,
        )
        return plan(observed, self.now)

    def step(self) -> Plan:
        """Plan and carry out the plan. Raises Crash before a write for which `crash` returns True."""
        made = self.plan()
        if made.status_first:
            self._store(made)
        for child in made.children:
            self._write()
            match child:
                case Check():
                    pass
                case Create() if child.name not in self.jobs:
                    self.create(child.name, child.resource, child.manifest)
                case Delete() if (job := self.jobs.get(child.name)) and job.uid == child.uid:
                    if self.lingering:
                        self.jobs[child.name] = replace(job, deleting=True)
                    else:
                        del self.jobs[child.name]
        if not made.status_first:
            self._store(made)
        self.events += [one.reason.name for one in made.events]
        return made

    def settle(self, most: int = 50) -> None:
        """Reconcile until nothing queues the experiment any more: neither a change of a job, nor its plan."""
        for _ in range(most):
            before = dict(self.jobs)
            made = self.step()
            if self.jobs == before and made.requeue_after != 0:
                return
        raise AssertionError("the plans do not settle")

    def create(self, name: str, resource: Any = TRAINING_JOBS, manifest: Any = None) -> None:
        """Create a job that the experiment owns."""
        self._uids += 1
        labels = (manifest or {}).get("metadata", {}).get("labels", {})
        self.jobs[name] = ChildJob(resource, name, f"uid-{self._uids}", {"phase": "Pending"}, labels=labels)
        self.manifests[name] = manifest or {}
        self.created.append(name)

    def end(self, name: str, result: Any = None, phase: str = "Succeeded", **status: Any) -> None:
        """End a job."""
        found = {"phase": phase, **({} if result is None else {"result": result}), **status}
        self.jobs[name] = replace(self.jobs[name], status=found)

    def vanish(self, name: str) -> None:
        """Remove a job as if a user had deleted it."""
        del self.jobs[name]

    def finish_deletions(self) -> None:
        """Remove the jobs that are being deleted."""
        self.jobs = {name: job for name, job in self.jobs.items() if not job.deleting}

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def change(self, **spec: Any) -> None:
        """Change fields of the spec, in Python names."""
        changed = self.experiment.spec.model_copy(update=spec)
        self.experiment = self.experiment.model_copy(update={"spec": changed})

    def named(self, part: str) -> str:
        """Return the name of the only job that has `part` in its name and has not ended."""
        (found,) = [name for name in self.active if part in name]
        return found

    def params(self, name: str) -> Any:
        """Return the Engine's parameters in the manifest of a job."""
        return self.manifests[name]["spec"]["engine"]["params"]

    @property
    def data(self) -> ExperimentData:
        """The data in the manifest of the analysis."""
        return decompressed(self.params(self.named("-result-"))["data"])

    def register(self) -> None:
        """Let the experiment register its plan."""
        self.settle()
        self.end(self.named("-plan-"), {"planHash": self.status.plan.hash})
        self.settle()

    def run_all(self, value: Callable[[Any], Any] = lambda params: {"latePercent": 1.0}) -> None:
        """Let all runs succeed. `value` returns the figures for the parameters of a run."""
        while runs := [name for name in self.active if "-b" in name]:
            for name in runs:
                self.end(name, {"figures": value(self.params(name))})
            self.settle()

    def analyse(self, valid: bool = True, **result: Any) -> None:
        """Let the analysis succeed."""
        found = {"digest": "sha256:1", "valid": valid, "controls": [], "verdicts": [VERDICT], **result}
        self.end(self.named("-result-"), found)
        self.settle()

    def _store(self, made: Plan) -> None:
        if made.status is not None:
            self._write()
            self.experiment = Experiment.model_validate({**self.experiment.to_dict(), "status": made.status})

    def _write(self) -> None:
        if self.crash():
            raise Crash
