"""One simulated run of an Experiment, or the tuning of one arm. The figures are the job's result."""

from __future__ import annotations

import time

import convoy
from convoy_workloads.engines.experiment_simulation.params import Params, RunParams, TuneParams
from convoy_workloads.engines.experiment_simulation.results import plan_of, run_result, tune_result
from convoy_workloads.engines.experiment_simulation.tuning_state import TuningState
from convoy_workloads.engines.no_model import NoModel
from convoy_workloads.runtime.errors import ParamsError
from convoy_workloads.simulators.simulator import InvalidSimulation
from convoy_workloads.simulators.tuning import Tuner


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
    result = run_result(params)
    job.restore(model=NoModel())
    for step in job.steps(1):
        job.report(step)
    job.set_result(result)


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
    job.set_result(tune_result(tuner, time.monotonic() - began))


if __name__ == "__main__":
    main()
