"""Lets the API server check one job of each arm before the plan is registered. The API server knows all
rules of the kinds and of the cluster's admission policies.
"""

from __future__ import annotations

from convoy_controllers.experiment import arms
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.children import RESOURCES, max_name, run_job
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import shortened
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_schedule import schedule
from convoy_crds.experiment_status import RunState, RunStatus
from convoy_crds.reasons.catalogue import Reasons


def send(draft: Draft) -> None:
    """Let the API server check the first run of each arm."""
    for run in _first_runs(draft.experiment):
        name = _name(draft.experiment, run)
        record = RunStatus(name=name, block=run.block.id, arm=run.label, attempt=1, state=RunState.PENDING)
        draft.check(RESOURCES[run.arm.type], run_job(draft.experiment, run, record))


def violation(observed: Observed) -> Violation | None:
    """Return the API server's refusal of an arm's job; None if it refused none."""
    for run in _first_runs(observed.experiment):
        refusal = observed.refused.get(_name(observed.experiment, run))
        if refusal is not None:
            number = [one.name for one in observed.experiment.spec.arms].index(run.arm.name)
            reason = Reasons.INVALID_SPEC
            return Violation(reason, reason.format(path=f"spec.arms[{number}]", why=refusal.message))
    return None


def _first_runs(experiment: Experiment) -> tuple[Run, ...]:
    return arms.runs(experiment.spec, schedule(experiment.spec)[0])


def _name(experiment: Experiment, run: Run) -> str:
    return shortened(f"{experiment.metadata.name}-check-{run.arm.name}", max_name(run.arm))
