"""The jobs that an Experiment creates, as manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.children import owner_reference
from convoy_controllers.experiment import arms
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.block_seed import seeded
from convoy_controllers.experiment.names import LOAD_SUFFIX, MAX_NAME, load_name, plan_label
from convoy_controllers.placement.kueue.names import LABEL_PRIORITY, LABEL_QUEUE
from convoy_controllers.resources import SERVING_JOBS, TRAINING_JOBS, Resource
from convoy_crds.engine import Engine
from convoy_crds.experiment import KIND, Experiment
from convoy_crds.experiment_arm import Arm, ArmType
from convoy_crds.experiment_plan import Perturbation
from convoy_crds.experiment_status import PlanEngine, RunStatus
from convoy_crds.perturbations import Backend, perturbation_type
from convoy_crds.servingjob_rollout import DEFAULT_PORT
from convoy_crds.terms import (
    ENGINE_ANALYSIS,
    ENGINE_LOAD,
    ENGINE_SIMULATION,
    LABEL_ARM,
    LABEL_ATTEMPT,
    LABEL_BLOCK,
    LABEL_EXPERIMENT,
    LABEL_MANAGED,
    LABEL_PLAN,
    OPERATOR,
)
from convoy_crds.trainingjob_checkpoint import CheckpointDefault

RESOURCES: Mapping[ArmType, Resource] = {
    ArmType.TRAINING_JOB: TRAINING_JOBS,
    ArmType.SERVING_JOB: SERVING_JOBS,
    ArmType.SIMULATION: TRAINING_JOBS,
}
"""Kind of the job of a run, by type of its arm."""
STORE_MEMORY = "256Mi"
"""Memory of a node from which a step's files are uploaded to the store."""
UPLOAD_SECONDS = "1s"
_QUEUE_LABELS = (LABEL_QUEUE, LABEL_PRIORITY)
"""Labels of an experiment that its TrainingJobs get."""
_ROLE = "worker"
_TRAINING_SUFFIX, _SERVING_SUFFIX, _MAX_POD_NAME = 6, 8, 63
_MAX_NAME_AT_ZERO = 46


def max_name(arm: Arm) -> int:
    """Return the maximum length of the names of an arm's jobs, so that the names of their pods fit."""
    body = arm.template.spec if arm.template is not None else {}
    roles = body.get("roles") if isinstance(body.get("roles"), list) else []
    longest = max((len(str(one.get("name", ""))) for one in roles or () if isinstance(one, dict)), default=0)
    if arm.type is ArmType.TRAINING_JOB:
        return min(MAX_NAME, _MAX_POD_NAME - _TRAINING_SUFFIX - longest)
    if arm.type is ArmType.SERVING_JOB:
        return min(MAX_NAME - len(LOAD_SUFFIX), _MAX_NAME_AT_ZERO, _MAX_POD_NAME - _SERVING_SUFFIX - longest)
    return MAX_NAME


def run_job(
    experiment: Experiment, run: Run, record: RunStatus, engines: Mapping[str, Engine]
) -> dict[str, Any]:
    """Return the manifest of the job of a run. Raises InvalidFieldPath if the spec lacks the field of a
    chosen value.
    """
    chosen = arms.settings(run.arm, arms.values(experiment, run))
    if run.arm.type is ArmType.SIMULATION:
        chosen = _tool(ENGINE_SIMULATION, simulation_params(experiment, run, chosen))
    elif run.arm.type is ArmType.TRAINING_JOB:
        chosen = seeded(chosen, engines, run.block.seed)
    labels = {LABEL_BLOCK: str(run.block.id), LABEL_ARM: run.arm.name, LABEL_ATTEMPT: str(record.attempt)}
    return manifest(experiment, RESOURCES[run.arm.type], record.name, chosen, labels)


def simulation_params(experiment: Experiment, run: Run, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a simulation. `chosen`: those of its simulator."""
    found: dict[str, Any] = {
        "action": "run",
        "simulator": run.arm.simulation.simulator if run.arm.simulation is not None else "",
        "params": chosen,
        "seed": run.block.seed,
    }
    registered = arms.perturbation(experiment.spec, run.block)
    if registered is not None:
        found["perturbation"] = _perturbation(registered, run.block.cell.magnitude)
    return found


def load_job(experiment: Experiment, run: Run, record: RunStatus) -> dict[str, Any]:
    """Return the job that sends the requests of a run to its ServingJob."""
    body = run.arm.template.spec if run.arm.template is not None else {}
    service = body.get("service") if isinstance(body.get("service"), dict) else None
    port = (service or {}).get("port", DEFAULT_PORT)
    url = f"http://{record.name}.{experiment.metadata.namespace}.svc:{port}"
    params = load_params(run, url)
    registered = arms.perturbation(experiment.spec, run.block)
    if registered is not None and Backend.LOAD in perturbation_type(registered.kind).backends:
        params["perturbation"] = _perturbation(registered, run.block.cell.magnitude)
    labels = {LABEL_BLOCK: str(run.block.id), LABEL_ARM: run.arm.name, LABEL_ATTEMPT: str(record.attempt)}
    spec = _tool(ENGINE_LOAD, params)
    return manifest(experiment, TRAINING_JOBS, load_name(record.name), spec, labels)


def load_params(run: Run, url: str) -> dict[str, Any]:
    """Return the parameters of the job that sends requests to `url`, without a perturbation."""
    return {**(run.arm.load or {}), "seed": run.block.seed, "url": url}


def step_job(
    experiment: Experiment, name: str, engine: str, params: Mapping[str, Any], attempt: int
) -> dict[str, Any]:
    """Return the job of a step. It saves its files to the store of the experiment."""
    spec = _tool(engine, params)
    remote = {"store": experiment.spec.store, "every": UPLOAD_SECONDS}
    spec["checkpoint"] = {"tiers": {"local": {"memory": STORE_MEMORY}, "remote": remote}}
    return manifest(experiment, TRAINING_JOBS, name, spec, {LABEL_ATTEMPT: str(attempt)})


def manifest(
    experiment: Experiment, resource: Resource, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest of a job that the experiment owns. A TrainingJob gets the experiment's queue."""
    meta, plan = experiment.metadata, experiment.status.plan
    queue = {key: meta.labels[key] for key in _QUEUE_LABELS if key in meta.labels}
    own = {LABEL_EXPERIMENT: meta.name, LABEL_MANAGED: OPERATOR}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {
                **(queue if resource == TRAINING_JOBS else {}),
                **own,
                **({LABEL_PLAN: plan_label(plan.hash)} if plan is not None else {}),
                **labels,
            },
            "ownerReferences": [owner_reference(KIND.api_version, KIND.name, meta.name, meta.uid)],
        },
        "spec": spec,
    }


def used_engines(experiment: Experiment) -> dict[str, str]:
    """Return the field path that needs each Engine of the experiment, by name of the Engine."""
    spec, found = experiment.spec, {ENGINE_ANALYSIS: "spec"}
    for number, arm in enumerate(spec.arms):
        if arm.type is ArmType.SIMULATION:
            found.setdefault(ENGINE_SIMULATION, f"spec.arms[{number}].simulation")
        if arm.type is ArmType.SERVING_JOB:
            found.setdefault(ENGINE_LOAD, f"spec.arms[{number}].load")
    for path, name in arms.engine_names(spec):
        found.setdefault(name, path)
    return found


def plan_engines(experiment: Experiment, engines: Mapping[str, Engine]) -> list[PlanEngine]:
    """Return the Engines of the experiment with their present images, sorted by name."""
    used = sorted(used_engines(experiment))
    return [PlanEngine(name=name, image=engines[name].spec.image) for name in used if name in engines]


def _perturbation(registered: Perturbation, magnitude: float | None) -> dict[str, Any]:
    found = {"kind": registered.kind.value, "magnitude": magnitude, "start": registered.start_seconds}
    seconds = registered.duration_seconds
    return found if seconds is None else {**found, "duration": seconds}


def _tool(engine: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "engine": {"name": engine, "params": dict(params)},
        "roles": [{"name": _ROLE, "replicas": 1}],
        "checkpoint": {"default": CheckpointDefault.NONE.value},
    }
