"""Runs an Experiment of simulations on this machine.

The operator's own plans decide which job comes next, and the results pass through the same forms as in a
cluster. Only the jobs themselves are replaced: each one runs at once, in this process. So the blocks have the
same seeds and the same numbers as in a cluster. The hash of the plan differs, because it contains the images
of the cluster's Engines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from convoy_controllers.children import Create, Delete
from convoy_controllers.experiment.observed import ChildJob, Observed
from convoy_controllers.experiment.plan import plan
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_data import NOT_REGISTERED, Deviation, decompressed
from convoy_crds.experiment_hash import plan_hash
from convoy_crds.experiment_status import EXPERIMENT_ENDED, ExperimentStatus
from convoy_crds.job_result import parse_result
from convoy_crds.terms import ENGINE_ANALYSIS, ENGINE_SIMULATION
from convoy_crds.trainingjob_status import Phase
from convoy_workloads.engines.experiment_simulation.params import Params, RunParams
from convoy_workloads.engines.experiment_simulation.results import plan_of, run_result, tune_result
from convoy_workloads.runtime.result import encode_result
from convoy_workloads.simulators.simulator import InvalidSimulation
from convoy_workloads.simulators.tuning import Tuner

NAMESPACE = "local"
FILE = "tuning.json"
"""End of the name of a tuning's log. The name begins with that of the job."""
UNREGISTERED = Deviation(
    reason=NOT_REGISTERED,
    message="convoy experiment try ran the plan on one machine. Nobody else can see that the plan stood "
    "before the first run. The images in the plan did not run",
)
"""The deviation of every experiment that runs here."""
Result = tuple[dict[str, Any], dict[str, bytes]]
"""The result of a job, and its files by name."""


class Stuck(Exception):
    """Raised if an experiment neither goes on nor ends. The message is that of its status."""


@dataclass(slots=True)
class LocalRun:
    """One experiment, its jobs and its files."""

    experiment: Experiment
    spec: Mapping[str, Any]
    """The spec as it stands in the manifest, with its defaults."""
    engines: Mapping[str, Engine]
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that the jobs would save to the store, by name."""
    jobs: dict[str, ChildJob] = field(default_factory=dict)
    ended: int = 0
    """Number of jobs that have run."""

    @property
    def status(self) -> ExperimentStatus:
        """Return the status of the experiment."""
        return self.experiment.status

    def step(self, now: datetime) -> bool:
        """Carry out one plan of the operator. Return True if it changed anything."""
        made = plan(self._observed(), now)
        if made.status is not None:
            status = ExperimentStatus.model_validate(made.status)
            self.experiment = self.experiment.model_copy(update={"status": status})
        for child in made.children:
            match child:
                case Create():
                    self.run_job(child)
                case Delete():
                    self.jobs.pop(child.name, None)
                case _:
                    pass
        return made.status is not None or any(isinstance(one, Create | Delete) for one in made.children)

    def _observed(self) -> Observed:
        store = self.experiment.spec.store
        return Observed(
            experiment=self.experiment,
            spec=self.spec,
            jobs=dict(self.jobs),
            engines=self.engines,
            store=_store(store),
            known_stores=(store,),
        )

    def run_job(self, child: Create) -> None:
        """Run a job to its end."""
        self.ended += 1
        engine = child.manifest["spec"]["engine"]
        status: dict[str, Any]
        try:
            result, files = PROGRAMS[engine["name"]](child.name, engine["params"])
            self.files.update(files)
            status = {"phase": Phase.SUCCEEDED, "result": parse_result(encode_result(result))}
        except (InvalidSimulation, ValidationError, ValueError) as error:
            status = {"phase": Phase.FAILED, "reason": type(error).__name__, "message": str(error)}
        labels = child.manifest["metadata"]["labels"]
        uid = f"job-{self.ended}"
        self.jobs[child.name] = ChildJob(child.resource, child.name, uid, status, labels=labels)


def local_run(experiment: Experiment, engines: Mapping[str, Engine]) -> LocalRun:
    """Return the run of an experiment, before its first step."""
    body = experiment.to_dict()
    metadata = {**body["metadata"], "namespace": NAMESPACE, "uid": "local", "generation": 1}
    started = Experiment.model_validate({"metadata": metadata, "spec": body["spec"]})
    return LocalRun(started, body["spec"], engines)


def run_to_end(run: LocalRun, progress: Callable[[LocalRun], None]) -> None:
    """Run an experiment to its end. `progress` is called after each plan. Raises Stuck if the experiment
    neither goes on nor ends.
    """
    while run.status.phase not in EXPERIMENT_ENDED:
        changed = run.step(datetime.now(UTC))
        progress(run)
        if not changed:
            raise Stuck(f"{run.status.reason}: {run.status.message}")


def _simulate(job: str, params: Mapping[str, Any]) -> Result:
    parsed = Params.model_validate(params).root
    if isinstance(parsed, RunParams):
        return run_result(parsed), {}
    began = time.monotonic()
    tuner = Tuner(plan_of(parsed))
    for _ in tuner.trials():
        pass
    files = {f"{job}.{FILE}": tuner.log.to_json().encode()}
    return tune_result(tuner, time.monotonic() - began), files


def analyse(job: str, params: Mapping[str, Any]) -> Result:
    """Register or analyse an experiment, as the Engine `experiment-analysis` does."""
    # The libraries for statistics load slowly, and an installation may lack them.
    from convoy_workloads.experiments.artefact import analysed, plan_files  # noqa: PLC0415
    from convoy_workloads.experiments.compact import compact  # noqa: PLC0415
    from convoy_workloads.experiments.register import problems, spec_of  # noqa: PLC0415

    registered = params["plan"]
    if params["action"] == "analyse":
        data = decompressed(params["data"])
        data = data.model_copy(update={"deviations": [*data.deviations, UNREGISTERED]})
        result, files = analysed(registered, data)
        return compact(result), files
    if wrong := problems(spec_of(registered)):
        raise ValueError("; ".join(wrong))
    return {"planHash": plan_hash(registered)}, plan_files(registered)


PROGRAMS: Mapping[str, Callable[[str, Mapping[str, Any]], Result]] = {
    ENGINE_SIMULATION: _simulate,
    ENGINE_ANALYSIS: analyse,
}
"""Programs of the Engines that an experiment of simulations uses: (name of the job, parameters) -> result."""


def _store(name: str) -> CheckpointStore:
    """Return a CheckpointStore that stands for the folder of the results."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Probed",
        "message": "",
        "lastTransitionTime": "2000-01-01T00:00:00Z",
    }
    spec = {"s3": {"bucket": "local", "credentialsSecret": "local"}, "allowedNamespaces": [NAMESPACE]}
    return CheckpointStore.model_validate(
        {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [ready]}}
    )
