"""The tables of a report, as plain text cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import NOT_REGISTERED
from convoy_crds.experiment_plan import Contrast, Direction
from convoy_crds.experiment_schedule import Cell, combinations
from convoy_crds.experiment_summary import condition_title
from convoy_workloads.experiments.result import HypothesisResult, Level, Result

_WORDS = {Direction.BETTER: "better", Direction.WORSE: "worse", Direction.NOT_WORSE: "not worse"}


@dataclass(frozen=True)
class Table:
    """One table of a report."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    empty: str
    """Text in place of a table without rows."""
    note: str = ""


def summary(plan: Mapping[str, Any], result: Result) -> list[str]:
    """Return the lines at the top of a report."""
    counts = Counter(one.verdict.value for one in result.hypotheses if one.verdict is not None)
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if not result.valid:
        verdicts = "The experiment is INVALID, because a control failed. It has no verdicts"
    elif result.void:
        verdicts = f"There are no verdicts: {result.void}"
    elif not result.hypotheses:
        verdicts = "The experiment is a sweep. It makes no predictions"
    blocks, swept = result.blocks, plan["spec"].get("sweep") is not None
    unit = "Runs" if swept else "Blocks"
    local = any(one.startswith(NOT_REGISTERED) for one in result.recorded)
    family = [
        f"- Family: {len(result.hypotheses)} hypotheses, corrected together (Holm, alpha {result.alpha:g}).",
        "- An effect is the mean paired difference of candidate and comparator; above 0 the candidate is "
        "better.",
    ]
    return [
        f"{verdicts}.",
        "",
        f"- Plan: `{result.plan_hash}`, {'not registered' if local else 'registered before the first run'}.",
        f"- {unit}: {blocks.ended} of {blocks.planned} ended, {blocks.failed} failed.",
        *([] if swept else family),
        *[f"- Engine {one['name']}: `{one['image']}` in the plan." for one in plan["engines"]],
        *[f"- Deviation from the plan: {one}." for one in result.recorded],
    ]


def tables(plan: Mapping[str, Any], result: Result) -> list[Table]:
    """Return all tables of a report, in their order."""
    spec = ExperimentSpec.model_validate(plan["spec"])
    found = [_values(spec, result)]
    if spec.sweep is None:
        found = [_verdicts(spec, result), _controls(result), *found, _effects(spec, result)]
        if any(one.tuning is not None for one in spec.arms):
            found.append(_tuning(spec, result))
    found += [_list("Remarks", [*result.recorded, *result.flags, *result.deviations], "There are none.")]
    found.append(_failures(result))
    return found


def where(spec: ExperimentSpec, one: HypothesisResult | Level) -> str:
    """Return the condition of a row."""
    return condition_title(spec, Cell(one.perturbation, one.magnitude))


def number(value: float | None) -> str:
    """Return a number with four significant digits; an empty text for None."""
    return "" if value is None else f"{value:.4g}"


def span(low: float | None, high: float | None) -> str:
    """Return an interval as text; an empty text if there is none."""
    return "" if low is None or high is None else f"{low:.4g} to {high:.4g}"


def _verdicts(spec: ExperimentSpec, result: Result) -> Table:
    rows = [
        (
            one.prediction,
            where(spec, one),
            _relation(one),
            one.verdict.value if one.verdict else "none",
            f"{number(one.effect)} {one.unit}".strip(),
            span(one.low, one.high),
            number(one.p),
            number(one.minimum_effect),
            f"{one.reason}. {one.sensitivity}".strip(". ") + ".",
        )
        for one in result.hypotheses
    ]
    columns = (
        "prediction", "condition", "predicted", "verdict", "effect", "interval", "p (Holm)", "minimum effect",
        "meaning",
    )  # fmt: skip
    note = (
        f"The interval of an effect has the level {1 - result.alpha:.4g}. For a prediction of not worse, or "
        "with few blocks, its level is lower: see `level` in result.json. The minimum effect is the smallest "
        f"distance from the threshold that would have been found with the probability {result.power:g}."
    )
    return Table("Verdicts", columns, rows, "There are no predictions.", note)


def _relation(one: HypothesisResult) -> str:
    margin = f", margin {one.margin:g} {one.unit}".rstrip() if one.margin else ""
    what = f"the degradation of {one.outcome}" if one.contrast is Contrast.DEGRADATION else one.outcome
    return f"{one.candidate} {_WORDS[one.direction]} than {one.comparator} in {what}{margin}"


def _controls(result: Result) -> Table:
    rows = [(one.name, "passed" if one.passed else "FAILED", one.message) for one in result.controls]
    empty = "The plan has no controls, so nothing shows that a wrong difference would be noticed."
    return Table("Controls", ("control", "result", "meaning"), rows, empty)


def _values(spec: ExperimentSpec, result: Result) -> Table:
    roles = {arm.name: arm.role.value for arm in spec.arms}
    labels = _combination_labels(spec)
    rows = [
        (
            one.outcome,
            where(spec, one),
            labels.get(one.arm, one.arm),
            roles.get(one.arm, ""),
            str(one.blocks),
            number(one.mean),
            span(one.low, one.high),
            number(one.median),
            str(one.censored or ""),
        )
        for one in result.levels
    ]
    columns = (
        "outcome", "condition", "arm", "role", "blocks", "mean", "95 % interval", "median", "censored",
    )  # fmt: skip
    return Table("Values", columns, rows, "No run has a value.")


def _combination_labels(spec: ExperimentSpec) -> dict[str, str]:
    if spec.sweep is None:
        return {}
    names = [one.name for one in spec.sweep.parameters]
    return {
        str(index): ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        for index, values in enumerate(combinations(spec.sweep.parameters))
    }


def _effects(spec: ExperimentSpec, result: Result) -> Table:
    rows = [
        (
            one.prediction,
            where(spec, one),
            str(one.blocks),
            str(len(one.failed)),
            f"{one.censored_candidate} / {one.censored_comparator}",
            number(one.raw_p),
            number(one.standardised),
            number(one.cliffs_delta),
            number(one.ratio),
            span(one.ratio_low, one.ratio_high),
        )
        for one in result.hypotheses
    ]
    columns = (
        "prediction", "condition", "pairs", "failed", "censored", "p (raw)", "d_z", "Cliff's delta",
        "ratio", "interval of the ratio",
    )  # fmt: skip
    note = (
        "A censored run did not reach its event in time and counts with the limit, so its mean is a "
        "restricted mean. d_z is the effect divided by the standard deviation of the differences. Cliff's "
        "delta, from -1 to 1, says how much more often a value of the candidate is better than one of the "
        "comparator than worse. The ratio is candidate / comparator."
    )
    return Table("Effect sizes", columns, rows, "There are no predictions.", note)


def _tuning(spec: ExperimentSpec, result: Result) -> Table:
    known = {one.arm: one for one in result.tuning}
    rows = []
    for arm in spec.arms:
        one = known.get(arm.name)
        budget = "none" if arm.tuning is None else str(arm.tuning.trials)
        chosen = ", ".join(f"{value.path}={value.value}" for value in one.values) if one else ""
        edge = ", ".join(value.path for value in one.values if value.at_edge) if one else ""
        done = str(one.trials) if one else ""
        rows.append((arm.name, budget, done, number(one.best) if one else "", chosen, edge))
    columns = ("arm", "trials in the plan", "trials", "best", "chosen", "at the edge")
    return Table("Tuning", columns, rows, "")


def _list(title: str, lines: Sequence[str], empty: str) -> Table:
    return Table(title, ("remark",), [(line,) for line in lines], empty)


def _failures(result: Result) -> Table:
    rows = [(str(one.block), one.arm, one.reason, one.message) for one in result.failures]
    return Table("Failed runs", ("block", "arm", "reason", "message"), rows, "No run failed.")
