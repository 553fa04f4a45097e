"""One simulated run of an Experiment, or the tuning of one arm. The figures are the job's result."""

from __future__ import annotations

import json
import time

import convoy
from convoy_workloads.engines.experiment_simulation.params import Params, RunParams, TuneParams
from convoy_workloads.engines.experiment_simulation.tuning_state import NoModel, TuningState
from convoy_workloads.runtime.errors import ParamsError
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation
from convoy_workloads.simulators.tuning import Tuner, TuningPlan


def main() -> None:
    """Run the job's only rank."""
    with convoy.join(Params) as job:
        try:
            params = job.params.root
            if isinstance(params, RunParams):
                simulate(job, params)
            else:
                tune(job, params)
        except InvalidSimulation as error:
            raise ParamsError(str(error)) from error


def simulate(job: convoy.Job[Params], params: RunParams) -> None:
    """Simulate one run. It is the job's only step. A restarted job repeats it."""
    outcome = run(params.simulator, params.params, params.seed, params.perturbation)
    job.restore(model=NoModel())
    for step in job.steps(1):
        job.report(step)
    job.set_result(
        {"figures": dict(outcome.figures), "censored": list(outcome.censored), "achieved": outcome.achieved}
    )


def tune(job: convoy.Job[Params], params: TuneParams) -> None:
    """Tune the parameters. Each trial is a step. With checkpoints, a restarted job goes on with its log."""
    began = time.monotonic()
    plan = plan_of(params)
    state = TuningState(plan)
    job.restore(model=NoModel(), extra={"tuning": state})
    tuner = Tuner(plan, state.log)
    state.log = tuner.log
    trials = tuner.trials()
    for step in job.steps(plan.trials):
        trial = next(trials)
        job.report(step, metrics={} if trial.best is None else {"best_score": trial.best})
        job.checkpoint(step)
    job.set_result(
        {
            "values": [
                {"path": one.path, "value": json.dumps(one.value), "atEdge": one.at_edge}
                for one in tuner.chosen()
            ],
            "best": tuner.best().score,
            "trials": len(tuner.log.trials),
            "seconds": round(time.monotonic() - began, 3),
            "log": tuner.log.digest,
        }
    )


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


if __name__ == "__main__":
    main()
