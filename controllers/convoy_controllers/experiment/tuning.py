"""Tunes the arms of an Experiment before the first block, or takes over what another experiment has tuned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from convoy_controllers.experiment import outcomes, steps
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import tuning_step
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.experiment.steps import StepEnd
from convoy_crds.experiment import Experiment, ExperimentSpec
from convoy_crds.experiment_arm import Arm
from convoy_crds.experiment_plan import TuningSettings
from convoy_crds.experiment_schedule import tuning_seed
from convoy_crds.experiment_status import (
    EXPERIMENT_ENDED,
    ExperimentPhase,
    TunedValue,
    TuningSource,
    TuningStatus,
)
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ENGINE_SIMULATION


def untuned(draft: Draft) -> list[Arm]:
    """Return the arms that are still to be tuned, in the order of the spec."""
    done = {one.arm for one in draft.status.tuning}
    return [arm for arm in draft.spec.arms if arm.tuning and arm.tuning.search and arm.name not in done]


def advance(draft: Draft) -> bool:
    """Tune the arms that are not tuned yet, at most `spec.parallelism` at a time. Return True once all are
    tuned.
    """
    left = untuned(draft)
    for arm in left[: draft.spec.parallelism]:
        end = steps.advance(draft, tuning_step(arm.name), ENGINE_SIMULATION, params(draft.spec, arm))
        if end is None:
            continue
        found = _status(arm, end)
        if found.failure:
            reason = Reasons.TUNING_FAILED
            message = reason.format(job=end.job, arm=arm.name, why=found.failure)
            draft.end(ExperimentPhase.FAILED, reason, message)
            return False
        draft.status.tuning.append(found)
    if not untuned(draft):
        return True
    _show(draft)
    return False


def params(spec: ExperimentSpec, arm: Arm) -> dict[str, Any]:
    """Return the parameters of the job that tunes an arm. All arms are tuned on the same blocks."""
    wanted = spec.tuning or TuningSettings(outcome=spec.outcomes[0].name)
    search, trials = (arm.tuning.search or [], arm.tuning.trials) if arm.tuning is not None else ([], 0)
    outcome = next(one for one in spec.outcomes if one.name == wanted.outcome)
    return {
        "action": "tune",
        "simulator": arm.simulation.simulator if arm.simulation is not None else "",
        "params": arm.simulation.params if arm.simulation is not None else {},
        "search": [one.to_dict() for one in search],
        "trials": trials,
        "seeds": [tuning_seed(spec.seed, block) for block in range(wanted.blocks)],
        "figure": outcome.source.metric or outcome.name,
        "better": outcome.better.value,
        "seed": tuning_seed(spec.seed, -1),
    }


def reused(observed: Observed, arm: Arm) -> TuningStatus | str | None:
    """Return the tuning that an arm takes over from another experiment, or the reason why it cannot; None if
    it takes over none.
    """
    if arm.tuning is None or arm.tuning.reuse is None:
        return None
    reuse, trials = arm.tuning.reuse, arm.tuning.trials
    source = observed.sources.get(reuse.experiment)
    if source is None:
        return f"there is no Experiment {reuse.experiment!r} in this namespace"
    found = next((one for one in source.status.tuning if one.arm == reuse.arm), None)
    if source.status.phase not in EXPERIMENT_ENDED or found is None:
        return f"Experiment {reuse.experiment!r} has not tuned an arm {reuse.arm!r}, or has not ended"
    if found.trials != trials:
        where = f"Experiment {reuse.experiment!r} tuned arm {reuse.arm!r}"
        return f"{where} with {found.trials} trials, not {trials}"
    first = next(one for one in observed.experiment.spec.arms if one.tuning)
    ours, theirs = _trials(observed, arm), _trials(observed, first)
    if ours is not None and theirs is not None:
        if ours.blocks != theirs.blocks:
            return (
                f"a trial of arm {arm.name!r} had {ours.blocks} blocks, but one of arm {first.name!r} has "
                f"{theirs.blocks}: all arms need the same budget"
            )
        if ours.goal != theirs.goal:
            return (
                f"arm {arm.name!r} was tuned for {ours.goal}, but arm {first.name!r} for {theirs.goal}: all "
                "arms need the same goal"
            )
    plan = source.status.plan.hash if source.status.plan is not None else ""
    origin = TuningSource(experiment=reuse.experiment, arm=reuse.arm, plan=plan)
    return found.model_copy(update={"arm": arm.name, "source": found.source or origin}, deep=True)


@dataclass(frozen=True, slots=True)
class _Trials:
    """The form of the trials of a tuning."""

    blocks: int
    """Number of blocks that each trial simulates."""
    goal: str
    """The outcome that the tuning improves, and the direction."""


def _trials(observed: Observed, arm: Arm) -> _Trials | None:
    """Return the form of the trials of an arm's tuning; None if it is unknown."""
    spec: ExperimentSpec | None = observed.experiment.spec
    if arm.tuning is not None and arm.tuning.reuse is not None:
        source = observed.sources.get(arm.tuning.reuse.experiment)
        spec = source.spec if source is not None else None
    if spec is None or spec.tuning is None:
        return None
    wanted = spec.tuning.outcome
    better = next((one.better.value for one in spec.outcomes if one.name == wanted), "?")
    return _Trials(spec.tuning.blocks, f"{better} {wanted}")


def all_reused(observed: Observed) -> Iterator[TuningStatus]:
    """Yield the tunings that the arms of a valid experiment take over."""
    experiment: Experiment = observed.experiment
    for arm in experiment.spec.arms:
        found = reused(observed, arm)
        if isinstance(found, TuningStatus):
            yield found


def _status(arm: Arm, end: StepEnd) -> TuningStatus:
    """Return the result of a tuning. A malformed result is a failure."""
    if end.failure:
        return TuningStatus(arm=arm.name, failure=end.failure)
    try:
        chosen = [_value(one) for one in end.result.get("values") or ()]
    except (TypeError, ValueError, ValidationError) as error:
        return TuningStatus(arm=arm.name, failure=f"its result is malformed: {str(error)[:120]}")
    wanted = {one.path for one in (arm.tuning.search if arm.tuning else None) or ()}
    if {one.path for one in chosen} != wanted:
        why = f"its result does not have exactly the values of: {', '.join(sorted(wanted))}"
        return TuningStatus(arm=arm.name, failure=why)
    trials = outcomes.number(end.result.get("trials"))
    return TuningStatus(
        arm=arm.name,
        trials=int(trials or 0),
        best=outcomes.number(end.result.get("best")),
        values=chosen,
        seconds=outcomes.number(end.result.get("seconds")),
    )


def _value(raw: Any) -> TunedValue:
    if not isinstance(raw, Mapping):
        raise TypeError("a value is no object")
    value = str(raw.get("value"))
    json.loads(value)
    return TunedValue(path=str(raw.get("path")), value=value, at_edge=raw.get("atEdge") is True)


def _show(draft: Draft) -> None:
    left = untuned(draft)
    running = sum(steps.record_of(draft, tuning_step(arm.name)) is not None for arm in left)
    every = sum(1 for arm in draft.spec.arms if arm.tuning and arm.tuning.search)
    reason = Reasons.TUNING
    draft.progress(ExperimentPhase.TUNING, reason, reason.format(left=len(left), all=every, running=running))
