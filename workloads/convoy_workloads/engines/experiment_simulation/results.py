"""The results that the jobs of this engine leave."""

from __future__ import annotations

import json
from typing import Any

from convoy_workloads.engines.experiment_simulation.params import RunParams, TuneParams
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.tuning import Tuner, TuningPlan


def run_result(params: RunParams) -> dict[str, Any]:
    """Simulate one run and return the result. Raises InvalidSimulation for invalid parameters."""
    outcome = run(params.simulator, params.params, params.seed, params.perturbation)
    return {
        "figures": dict(outcome.figures),
        "censored": list(outcome.censored),
        "achieved": outcome.achieved,
    }


def tune_result(tuner: Tuner, seconds: float) -> dict[str, Any]:
    """Return the result of a tuning that has ended. `seconds`: the time that it took."""
    return {
        "values": [
            {"path": one.path, "value": json.dumps(one.value), "atEdge": one.at_edge}
            for one in tuner.chosen()
        ],
        "best": tuner.best().score,
        "trials": len(tuner.log.trials),
        "seconds": round(seconds, 3),
        "log": tuner.log.digest,
    }


def plan_of(params: TuneParams) -> TuningPlan:
    """Return the plan of the tuning."""
    return TuningPlan(
        simulator=params.simulator,
        params=params.params,
        search=params.search,
        trials=params.trials,
        seeds=params.seeds,
        figure=params.figure,
        better=params.better,
        seed=params.seed,
    )
