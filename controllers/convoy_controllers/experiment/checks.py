"""Lets the API server check jobs of each arm before the plan is registered. The API server knows all rules
of the kinds and of the cluster's admission policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from convoy_controllers.experiment import arms
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.children import RESOURCES, max_name, run_job
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import shortened
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_schedule import combinations, schedule
from convoy_crds.experiment_status import RunState, RunStatus
from convoy_crds.reasons.catalogue import Reasons

MAX_COMBINATIONS = 32
"""Maximum number of a sweep's combinations whose jobs are checked."""


def send(draft: Draft) -> None:
    """Let the API server check the first run of each arm. For a sweep of jobs: of each combination, up to
    MAX_COMBINATIONS.
    """
    limit = None if draft.spec.sweep is None else MAX_COMBINATIONS
    for run in islice(_checked_runs(draft.experiment), limit):
        name = _name(draft.experiment, run)
        record = RunStatus(name=name, block=run.block.id, arm=run.label, attempt=1, state=RunState.PENDING)
        draft.check(RESOURCES[run.arm.type], run_job(draft.experiment, run, record, draft.observed.engines))


def violation(observed: Observed) -> Violation | None:
    """Return the API server's refusal of a job; None if it refused none."""
    for run in _checked_runs(observed.experiment):
        refusal = observed.refused.get(_name(observed.experiment, run))
        if refusal is not None:
            reason, path = Reasons.INVALID_SPEC, _path(observed.experiment, run)
            return Violation(reason, reason.format(path=path, why=refusal.message))
    return None


def _checked_runs(experiment: Experiment) -> Iterator[Run]:
    blocks, spec = schedule(experiment.spec), experiment.spec
    if spec.sweep is None or spec.arms[0].type is ArmType.SIMULATION:
        yield from arms.runs(spec, blocks[0])
        return
    first = sorted((one for one in blocks if one.repetition == 0), key=lambda one: one.combination or 0)
    for block in first:
        yield from arms.runs(spec, block)


def _path(experiment: Experiment, run: Run) -> str:
    """Return the field that a run's job comes from, and for a sweep the values of its combination."""
    spec = experiment.spec
    number = [one.name for one in spec.arms].index(run.arm.name)
    if spec.sweep is None or run.block.combination is None:
        return f"spec.arms[{number}]"
    names = [one.name for one in spec.sweep.parameters]
    values = combinations(spec.sweep.parameters)[run.block.combination]
    shown = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return f"spec.arms[{number}] with {shown[:120]}"


def _name(experiment: Experiment, run: Run) -> str:
    combination = "" if run.block.combination is None else f"-{run.block.combination}"
    return shortened(f"{experiment.metadata.name}-check-{run.arm.name}{combination}", max_name(run.arm))
