"""Runs the scenario and computes the figures."""

from __future__ import annotations

import math

from convoy_controllers.simulate.replay import replay
from convoy_controllers.simulate.training_jobs import TrainingResult
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_crds.goodput import Cause
from convoy_crds.trainingjob_status import Phase
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.recovery.params import Params
from convoy_workloads.simulators.recovery.scenario import SLOW, scenario
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

_DIGITS = 6


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate the job once and return its figures."""
    made, own = scenario(params, seed, perturbation)
    try:
        history = replay(made)
    except InvariantViolation as fault:
        raise InvalidSimulation(f"the operator violated an invariant; report this: {fault}") from fault
    (result,) = history.results
    if not isinstance(result, TrainingResult):
        raise TypeError(f"{result} is no result of a TrainingJob")
    status = result.job.status
    spent = math.fsum(result.truth.values())
    productive = result.truth.get(Cause.PRODUCTIVE, 0.0)
    complete = status.phase is Phase.SUCCEEDED
    figures = {
        "goodput": productive / spent if spent else 0.0,
        # A job that failed never completes, so its end says nothing about the time that it needs.
        "seconds": spent if complete else params.seconds,
        "lostSeconds": spent - productive,
        "restarts": float(status.restarts.total),
        "completedSteps": float(status.progress.step if status.progress else 0),
        "offeredFaults": float(sum(event.do != "returnNode" for event in made.events)),
    }
    acted = [one for one in own if one not in history.skipped and made.events[one].at < spent]
    rounded = {name: round(value, _DIGITS) for name, value in figures.items()}
    return Outcome(rounded, () if complete else ("seconds",), _achieved(perturbation, len(acted)))


def _achieved(perturbation: Perturbation | None, acted: int) -> float | None:
    """Return the magnitude that was achieved. `acted`: number of the perturbation's events that had an effect
    while the job ran.
    """
    if perturbation is None:
        return None
    if perturbation.kind in SLOW:
        return perturbation.magnitude if acted else None
    return float(acted)
