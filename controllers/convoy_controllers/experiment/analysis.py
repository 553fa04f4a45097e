"""Lets the analysis engine analyse the ended blocks, and shows its verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from convoy_controllers.experiment import registration, steps, stops, storage
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import RESULT_STEP
from convoy_controllers.experiment.steps import StepEnd
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import Deviation, ExperimentData, compressed, pack
from convoy_crds.experiment_status import (
    MAX_HYPOTHESES,
    ArtefactStatus,
    ControlStatus,
    ExperimentPhase,
    ExperimentStatus,
    PlanStatus,
    StepRecord,
    Verdict,
    VerdictStatus,
)
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ENGINE_ANALYSIS, ConditionType

_MAX_CONTROL_MESSAGE = 256
_DEVIATES = ((ConditionType.STOPPED_EARLY, "True"), (ConditionType.PLAN_KEPT, "False"))
"""Conditions that show a deviation from the plan, and their status in that case."""


class MalformedResult(ValueError):
    """The analysis has left a result that does not have the agreed form."""


def advance(draft: Draft, plan: PlanStatus) -> None:
    """Analyse the ended blocks, and end the experiment with the verdicts."""
    if not draft.status.blocks:
        reason, why = Reasons.NOTHING_TO_ANALYSE, draft.status.internal.stopped
        draft.end(ExperimentPhase.FAILED, reason, reason.format(why=why))
        return
    if not storage.ready(draft, ExperimentPhase.ANALYSING):
        return
    end = steps.advance(draft, RESULT_STEP, ENGINE_ANALYSIS, params(draft, plan))
    if end is None:
        _show(draft)
        return
    try:
        if not end.failure:
            _conclude(draft, end)
            return
        why = end.failure
    except MalformedResult as error:
        why = f"its result is malformed: {error}"
    reason = Reasons.ANALYSIS_FAILED
    draft.end(ExperimentPhase.FAILED, reason, reason.format(job=end.job, why=why))


def params(draft: Draft, plan: PlanStatus) -> dict[str, Any]:
    """Return the parameters of the analysis: the plan, and all data."""
    data = ExperimentData(
        blocks=pack(draft.spec, draft.status.blocks),
        tuning=[one.to_dict() for one in draft.status.tuning],
        deviations=[
            Deviation(reason=one.reason, message=one.message)
            for one in draft.status.conditions
            if (one.type, one.status) in _DEVIATES
        ],
    )
    return {"action": "analyse", "plan": registration.registered_plan(plan), "data": compressed(data)}


def controls(result: Mapping[str, Any]) -> list[ControlStatus]:
    """Return the controls in the result of an analysis. Raises MalformedResult if the result has another
    form.
    """
    found = []
    for row in _rows(result, "controls", 3):
        name, passed, message = row
        if not isinstance(passed, bool):
            raise MalformedResult("a control has neither passed nor failed")
        text = str(message)[:_MAX_CONTROL_MESSAGE]
        found.append(ControlStatus(name=str(name), passed=passed, message=text))
    return found


def verdicts(spec: ExperimentSpec, result: Mapping[str, Any]) -> list[VerdictStatus]:
    """Return the verdicts in the result of an analysis. Raises MalformedResult if the result has another
    form.
    """
    return [_verdict(spec, row) for row in _rows(result, "verdicts", 10)]


def _verdict(spec: ExperimentSpec, row: Sequence[Any]) -> VerdictStatus:
    number, magnitude, verdict, effect, low, high, p, minimum_effect, blocks, unequal = row
    try:
        prediction = (spec.predictions or [])[_index(number)]
        named = next((one for one in spec.perturbations or () if one.name == prediction.perturbation), None)
        return VerdictStatus(
            prediction=prediction.name,
            perturbation=prediction.perturbation or "",
            magnitude=named.magnitudes[_index(magnitude)] if named is not None else None,
            verdict=Verdict(verdict),
            effect=effect,
            low=low,
            high=high,
            p=p,
            minimum_effect=minimum_effect,
            blocks=blocks,
            unequal=bool(unequal) or None,
        )
    except (IndexError, TypeError, ValueError, ValidationError) as error:
        raise MalformedResult(f"a verdict is {str(list(row))[:80]}") from error


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an index is no whole number")
    return value


def _rows(result: Mapping[str, Any], name: str, length: int) -> list[Sequence[Any]]:
    rows = result.get(name, [])
    if not isinstance(rows, list) or any(not isinstance(row, list) or len(row) != length for row in rows):
        raise MalformedResult(f"{name} is no list of rows of {length} values")
    if len(rows) > MAX_HYPOTHESES:
        raise MalformedResult(f"{name} has {len(rows)} rows, more than {MAX_HYPOTHESES}")
    return list(rows)


def _conclude(draft: Draft, end: StepEnd) -> None:
    status, result = draft.status, end.result
    digest, valid = result.get("digest"), result.get("valid")
    if not isinstance(digest, str) or not isinstance(valid, bool):
        raise MalformedResult("digest or valid is missing")
    failed = status.internal.stopped == Reasons.TOO_MANY_FAILED_BLOCKS.name
    status.controls = controls(result)
    status.verdicts = verdicts(draft.spec, result) if valid and not failed else []
    status.artefact = ArtefactStatus(store=draft.spec.store, job_uid=end.uid, digest=digest)
    status.summary = _summary(status)
    facts: dict[str, Any] = {"store": draft.spec.store, "name": draft.name}
    if failed:
        draft.end(ExperimentPhase.FAILED, Reasons.TOO_MANY_FAILED_BLOCKS, stops.too_many_failed(draft))
    elif valid:
        summary = status.summary or f"{len(status.blocks)} blocks have ended"
        message = Reasons.VERDICTS_READY.format(summary=summary, **facts)
        draft.end(ExperimentPhase.SUCCEEDED, Reasons.VERDICTS_READY, message)
    else:
        broken = next((one for one in status.controls if not one.passed), None)
        names = {"control": broken.name if broken else "", "why": broken.message if broken else ""}
        message = Reasons.CONTROL_FAILED.format(**names, **facts)
        draft.end(ExperimentPhase.INVALID, Reasons.CONTROL_FAILED, message)


def _summary(status: ExperimentStatus) -> str:
    """Return the numbers of verdicts, and the fact that the experiment stopped early."""
    counts = Counter(one.verdict for one in status.verdicts)
    found = ", ".join(f"{counts[one]} {one.value}" for one in Verdict if counts[one])
    return f"{found}; stopped early" if found and status.internal.stopped else found


def _show(draft: Draft) -> None:
    record = steps.record_of(draft, RESULT_STEP) or StepRecord(name=RESULT_STEP, attempt=1)
    reason = Reasons.ANALYSING
    message = reason.format(job=steps.name_of(draft, record), blocks=len(draft.status.blocks))
    draft.progress(ExperimentPhase.ANALYSING, reason, message)
