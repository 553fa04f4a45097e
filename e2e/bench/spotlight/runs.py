"""Carries out the simulated runs and tunings of the bench. Results are kept, so that a bench may be stopped.

A result belongs to its parameters, its seed, and the source code of the simulation. With other code it is
computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import convoy_workloads
from convoy_crds import spot_prices
from convoy_crds.experiment_arm import TunedParameter
from convoy_crds.experiment_plan import Better
from convoy_workloads.bench.figures import replace_file
from convoy_workloads.engines.orchestration.work import MapAll
from convoy_workloads.engines.spotlight.arms import StudyArm
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.tuning import Tuner, TuningPlan, tuned

SIMULATOR = "spotlight"
TUNED_FIGURE = "tuningHours"
_PACKAGE = Path(convoy_workloads.__file__).parent
_SOURCES = (
    "engines/spotlight/canary.py",
    "engines/spotlight/iteration.py",
    "engines/spotlight/params.py",
    "engines/spotlight/planner.py",
    "engines/spotlight/selection.py",
    "engines/spotlight/workers.py",
    "engines/spotlight/learning/*.py",
    "engines/spotlight/simulated/*.py",
    "simulators/run.py",
    "simulators/spotlight/*.py",
    "simulators/tuning.py",
    "spot/*.py",
    "spot/ledger/*.py",
)


@dataclass(frozen=True, slots=True)
class RunTask:
    """The parameters and the seed of one simulated run."""

    params: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class TuningTask:
    """The tuning of one arm."""

    arm: StudyArm
    params: Mapping[str, Any]
    trials: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a run."""

    figures: Mapping[str, float]
    censored: bool
    """True if the run did not reach the target. Its time and its cost are then lower bounds."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with changes. Objects within both are merged too."""
    found = dict(base)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found


def simulate(task: RunTask) -> dict[str, Any]:
    """Carry out a run."""
    outcome = run(SIMULATOR, task.params, task.seed)
    return {"figures": dict(outcome.figures), "censored": bool(outcome.censored)}


def tune(task: TuningTask) -> dict[str, Any]:
    """Tune an arm. Return its parameters, and the trials."""
    plan = TuningPlan(
        simulator=SIMULATOR,
        params=task.params,
        search=[TunedParameter.model_validate(dict(one)) for one in task.arm.search],
        trials=task.trials,
        seeds=task.seeds,
        figure=TUNED_FIGURE,
        better=Better.LOWER,
        seed=1,
    )
    tuner = Tuner(plan)
    for _ in tuner.trials():
        pass
    return {
        "params": tuned(task.params, tuner.best().values),
        "best": tuner.best().score,
        "atEdge": [one.path for one in tuner.chosen() if one.at_edge],
        "log": json.loads(tuner.log.to_json()),
    }


class OtherCode(Exception):
    """The saved results are those of other code."""


class Store:
    """Results by the digest of their input. Without a file they are kept in memory only."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._code = _code_digest()
        self._known: dict[str, Any] = {}
        if file is not None and file.exists():
            saved = json.loads(file.read_text())
            if saved["code"] != self._code:
                raise OtherCode(f"{file} has the results of other code. Remove it, and all runs begin anew")
            self._known = saved["results"]

    def runs(self, tasks: Sequence[RunTask], map_all: MapAll) -> list[Found]:
        """Return the results of the runs, in their order."""
        keys = [_digest([dict(one.params), one.seed]) for one in tasks]
        self._complete(dict(zip(keys, tasks, strict=True)), simulate, map_all)
        return [Found(**self._known[key]) for key in keys]

    def tunings(self, tasks: Sequence[TuningTask], map_all: MapAll) -> list[dict[str, Any]]:
        """Return the results of the tunings, in their order."""
        keys = [
            _digest([dict(one.params), one.trials, one.seeds, [dict(two) for two in one.arm.search]])
            for one in tasks
        ]
        self._complete(dict(zip(keys, tasks, strict=True)), tune, map_all)
        return [{**self._known[key], "arm": one.arm.name} for key, one in zip(keys, tasks, strict=True)]

    def _complete(self, tasks: Mapping[str, Any], function: Any, map_all: MapAll) -> None:
        missing = {key: one for key, one in tasks.items() if key not in self._known}
        results: Iterator[Any] = map_all(function, missing.values())
        for key, found in zip(missing, results, strict=True):
            self._known[key] = found
            if self._file is not None:
                replace_file(self._file, {"code": self._code, "results": self._known})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def _code_digest() -> str:
    """Return the digest of the simulation's source code, and of the versions of its libraries."""
    files: Iterable[Path] = (file for pattern in _SOURCES for file in sorted(_PACKAGE.glob(pattern)))
    sources = [[str(file.relative_to(_PACKAGE)), file.read_text()] for file in files]
    prices = Path(spot_prices.__file__).read_text()
    return _digest([sources, prices, TUNED_FIGURE, [version(name) for name in ("numpy", "optuna", "torch")]])
