"""The plan of the study: experiments, training, windows and the rules for the claims. Its hash is computed
before the first run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment_hash import HASH_PREFIX, canonical, digest, plan_document
from convoy_crds.experiment_schedule import seed_of, tuning_seed
from convoy_workloads.engines.orchestration.arms import BROKEN, COMPARED, LEARNED, SAME, StudyArm
from convoy_workloads.engines.orchestration.claims import RULES
from convoy_workloads.engines.orchestration.params import KindName, Params
from convoy_workloads.engines.orchestration.systems import System, base_params, chosen
from convoy_workloads.engines.orchestration.training import (
    SELECTION_STREAM,
    SELECTION_WINDOWS,
    TRAINING_STREAM,
    start_weights,
)
from convoy_workloads.simulators.allocation import workload as allocation_workload
from convoy_workloads.simulators.autoscaling import workload as autoscaling_workload
from convoy_workloads.simulators.dag_scheduling import workload as dag_workload

ALPHA = 0.05
"""Probability of at least one wrong verdict in the whole study. Each experiment gets an equal part."""
SHORT = {"ObservationLag": "lag", "TelemetryNoise": "noise", "WorkloadShift": "shift", "Tenant": "tenant"}
"""Name of the perturbation of each kind."""


@dataclass(frozen=True, slots=True)
class StudyExperiment:
    """One experiment of the study: a system under one kind of perturbation."""

    system: System
    kind: KindName
    plan: dict[str, Any]
    """The plan document, in the form of an Experiment's."""

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return str(self.plan["name"])


def experiments(params: Params) -> list[StudyExperiment]:
    """Return the experiments of the study."""
    pairs = [(system, kind) for system in chosen(params) for kind in params.perturbations]
    return [
        StudyExperiment(
            system,
            kind,
            plan_document(
                f"{system.name}-{SHORT[kind]}", _spec(system, kind, params, ALPHA / len(pairs)), ()
            ),
        )
        for system, kind in pairs
    ]


def study_document(params: Params) -> dict[str, Any]:
    """Return everything that is fixed before the first run. The number of processes and the folder are left
    out, because the results do not depend on them.
    """
    return {
        "experiments": [one.plan for one in experiments(params)],
        "params": params.model_dump(exclude={"workers", "folder"}),
        "claims": dict(RULES),
        "beside": {
            f"{system.name}/{arm.name}": {
                "params": simulation_params(system, arm, params),
                "search": [dict(one) for one in arm.search],
                "tunedUnder": list(arm.tuned_under),
            }
            for system in chosen(params)
            for arm in system.arms
            if arm.tuned_under is not None
        },
        "windows": {system.name: window_digests(system, params) for system in chosen(params)},
    }


def study_hash(document: dict[str, Any]) -> str:
    """Return the hash of the study's plan."""
    return digest(document)


def simulation_params(system: System, arm: StudyArm, params: Params) -> dict[str, Any]:
    """Return the parameters of an arm before its training and tuning."""
    policy = dict(arm.policy)
    weights = start_weights(system, params) if policy["name"] == "learned" else None
    if weights is not None:
        policy["weights"] = weights
    return {**base_params(system, params), "policy": policy}


def _spec(system: System, kind: KindName, params: Params, alpha: float) -> dict[str, Any]:
    return {
        "arms": [*_arms(system, params), *_controls(system, params)],
        "outcomes": [
            {"name": name, "better": "Lower", "source": {"metric": name}} for name in system.outcomes
        ],
        "store": "study",
        "seed": params.seed,
        "blocks": params.blocks,
        "perturbations": [
            {"name": SHORT[kind], "kind": kind, "magnitudes": magnitudes(system, kind, params)}
        ],
        "predictions": list(_predictions(system, kind)),
        "analysis": {"alpha": alpha, "resamples": params.resamples},
        "tuning": {"outcome": system.tuned, "blocks": params.tuning_windows},
    }


def magnitudes(system: System, kind: KindName, params: Params) -> list[float]:
    """Return the magnitudes of a perturbation."""
    return list(system.magnitudes[kind][: params.magnitudes])


def _arms(system: System, params: Params) -> Iterator[dict[str, Any]]:
    for arm in system.arms:
        if arm.tuned_under is not None:
            continue
        found: dict[str, Any] = {
            "name": arm.name,
            "type": "Simulation",
            "role": arm.role,
            "simulation": {"simulator": system.name, "params": simulation_params(system, arm, params)},
        }
        if arm.search:
            found["tuning"] = {"trials": params.trials, "search": [dict(one) for one in arm.search]}
        yield found


def _controls(system: System, params: Params) -> Iterator[dict[str, Any]]:
    learned = system.arms[0]
    broken = {"simulator": system.name, "params": simulation_params(system, learned, params)}
    yield {"name": SAME, "type": "Simulation", "role": "NegativeControl", "controlOf": LEARNED}
    yield {
        "name": BROKEN, "type": "Simulation", "role": "PositiveControl", "controlOf": LEARNED,
        "simulation": broken,
    }  # fmt: skip


def _predictions(system: System, kind: KindName) -> Iterator[dict[str, Any]]:
    """Yield the predictions of the usual explanation: learned controllers are better on the bench, but
    perturbations hurt them more, so that they become worse than their comparators.
    """
    for other in COMPARED:
        common = {"outcome": system.primary, "candidate": LEARNED, "comparator": other}
        perturbed = {**common, "direction": "Worse", "perturbation": SHORT[kind]}
        yield {**common, "name": f"gain-{other}", "direction": "Better"}
        yield {**perturbed, "name": f"degrades-{other}", "contrast": "Degradation"}
        yield {**perturbed, "name": f"reversal-{other}", "contrast": "Level"}


def window_seeds(params: Params) -> dict[str, list[int]]:
    """Return the seeds of all windows by their use. No seed has two uses.

    The policy q-learning is trained on windows with negative seeds, which no other use has.
    """
    return {
        "training": [seed_of(params.seed + TRAINING_STREAM, one) for one in range(params.iterations)],
        "selection": [seed_of(params.seed + SELECTION_STREAM, one) for one in range(SELECTION_WINDOWS)],
        "tuning": [tuning_seed(params.seed, one) for one in range(params.tuning_windows)],
        "test": [seed_of(params.seed, one) for one in range(params.blocks)],
    }


def window_digests(system: System, params: Params) -> dict[str, str]:
    """Return the SHA-256 of the windows of each use."""
    return {
        use: _digest_of_windows(system, params, seeds)
        for use, seeds in window_seeds(params).items()
        if use in ("tuning", "test")
    }


def _digest_of_windows(system: System, params: Params, seeds: Sequence[int]) -> str:
    found = hashlib.sha256()
    for seed in seeds:
        found.update(canonical(_window(system, params, seed)))
    return HASH_PREFIX + found.hexdigest()


def _window(system: System, params: Params, seed: int) -> Any:
    """Return the workload of a window as JSON."""
    base = base_params(system, params)
    match system.name:
        case "autoscaling":
            bursty = autoscaling_workload.BurstyWorkload.model_validate(base["workload"])
            rates = autoscaling_workload.rates(bursty, params.seconds, seed)
            return autoscaling_workload.arrivals(rates, seed)
        case "dag-scheduling":
            queries = dag_workload.Workload.model_validate(base["workload"])
            return [
                [job.arrival, [[stage.tasks, stage.seconds, list(stage.parents)] for stage in job.stages]]
                for job in dag_workload.jobs(queries, seed)
            ]
        case "allocation":
            sized = allocation_workload.Workload.model_validate(base["workload"])
            return [
                [job.arrival, job.seconds, job.used.cores, job.used.memory]
                for job in allocation_workload.jobs(sized, seed)
            ]
