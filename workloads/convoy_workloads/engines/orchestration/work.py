"""The pieces of work of the study. Each one is a function of its input alone, so any process can do it."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from convoy_crds.experiment_arm import TunedParameter
from convoy_crds.experiment_plan import Better
from convoy_crds.experiment_schedule import tuning_seed
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.engines.orchestration.arms import StudyArm
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.systems import System
from convoy_workloads.engines.orchestration.training import Trained, train
from convoy_workloads.experiments.analysis import analyse
from convoy_workloads.experiments.result import Result
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.tuning import Tuner, TuningPlan

T = TypeVar("T")
R = TypeVar("R")


class MapAll(Protocol):
    """A function that maps work to results, in the order of the work."""

    def __call__(self, function: Callable[[T], R], work: Iterable[T], /) -> Iterator[R]:
        """Yield the result of each piece of work."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """The key of a simulated run."""

    arm: str
    seed: int
    kind: str = ""
    """Kind of the perturbation; empty for none."""
    magnitude: float = 0.0


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Runs of one system. The parameters of an arm are sent once for all its runs."""

    simulator: str
    params: Mapping[str, Mapping[str, Any]]
    """Parameters of each arm."""
    keys: tuple[RunKey, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of one run."""

    figures: Mapping[str, float]
    achieved: float | None


def simulate(batch: RunBatch) -> list[tuple[RunKey, Figures]]:
    """Carry out runs, and return their figures."""
    found = []
    for key in batch.keys:
        perturbation = (
            Perturbation(kind=PerturbationKind(key.kind), magnitude=key.magnitude) if key.kind else None
        )
        outcome = run(batch.simulator, batch.params[key.arm], key.seed, perturbation)
        found.append((key, Figures(dict(outcome.figures), outcome.achieved)))
    return found


@dataclass(frozen=True, slots=True)
class TuningTask:
    """The tuning of one arm."""

    system: System
    arm: StudyArm
    params: Params
    simulation: Mapping[str, Any]
    """Parameters of the simulator, with the trained policy."""


def tune(task: TuningTask) -> dict[str, Any]:
    """Tune an arm, and return its row of an Experiment's `status.tuning`."""
    plan = TuningPlan(
        simulator=task.system.name,
        params=task.simulation,
        search=[TunedParameter.model_validate(dict(one)) for one in task.arm.search],
        trials=task.params.trials,
        seeds=[tuning_seed(task.params.seed, number) for number in range(task.params.tuning_windows)],
        figure=task.system.tuned,
        better=Better.LOWER,
        seed=task.params.seed,
        perturbations=_tuning_perturbations(task),
    )
    tuner = Tuner(plan)
    for _ in tuner.trials():
        pass
    values = [
        {"path": one.path, "value": json.dumps(one.value), "atEdge": one.at_edge} for one in tuner.chosen()
    ]
    return {
        "arm": task.arm.name,
        "trials": len(tuner.log.trials),
        "best": tuner.best().score,
        "values": values,
    }


def _tuning_perturbations(task: TuningTask) -> list[Perturbation | None]:
    """Return the perturbation of each window of a tuning."""
    if task.arm.tuned_under is None:
        return [None] * task.params.tuning_windows
    kind, magnitude = task.arm.tuned_under
    found = Perturbation(kind=PerturbationKind(kind), magnitude=magnitude)
    return [found if number % 2 else None for number in range(task.params.tuning_windows)]


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """The training of a system's network."""

    system: System
    params: Params


def train_network(task: TrainingTask) -> Trained | None:
    """Train a network; None if the simulator trains the policy itself."""
    return train(task.system, task.params)


@dataclass(frozen=True, slots=True)
class AnalysisTask:
    """The analysis of one experiment."""

    plan: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]
    tuning: Sequence[Mapping[str, Any]]


def analyse_experiment(task: AnalysisTask) -> Result:
    """Return the result of an experiment."""
    return analyse(task.plan, task.blocks, task.tuning)


@contextmanager
def mapping(workers: int) -> Iterator[MapAll]:
    """Provide a function that maps work to results, with some processes."""
    if workers == 1:
        yield map
        return
    # A forked child would inherit the threads' locks of torch, which the engine has loaded.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)
