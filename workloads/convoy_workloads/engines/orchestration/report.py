"""The report of the study, as Markdown and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.orchestration.arms import BROKEN, COMPARED, LEARNED, OWN, SAME
from convoy_workloads.engines.orchestration.claim_rules import LAG_ARMS, lag_rows
from convoy_workloads.engines.orchestration.claims import INTERVALS, RULES, ClaimResult
from convoy_workloads.engines.orchestration.evidence import Estimated, Finished
from convoy_workloads.engines.orchestration.systems import System
from convoy_workloads.engines.orchestration.training import Trained
from convoy_workloads.experiments.result import HypothesisResult

SIMULATED = (
    "Everything here is simulated: the clusters, the jobs and the requests. The workloads come from "
    "generators, not from traces. The learned controllers are small rebuilds of the published methods. No "
    "code of the publications is used. The autoscaler has the exact rules of HorizontalPodAutoscaler. The "
    "other comparators are rebuilds too."
)


LAG_FIGURES: Mapping[str, str] = {"latePercent": "percentage points", "weightedCost": "pod hours"}
"""Figures of the lag advantage with their units: the primary one, and the one that the tuning improves."""


NEAR = 0.05
"""Relative deviation of a reached magnitude that the report does not mention."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A system under a perturbation."""

    kind: str = ""
    magnitude: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.magnitude:g}" if self.kind else "unperturbed"


Means = Mapping[tuple[str, str, Condition], Mapping[str, float]]
"""Mean of each figure, by system, arm and condition."""


@dataclass(frozen=True, kw_only=True)
class StudyData:
    """The plan and all results of the finished study, from which the report is made."""

    hash: str
    plan: Mapping[str, Any]
    training: Mapping[str, Trained]
    """Trained network of each system."""
    tuning: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of the tuning of each system."""
    finished: Sequence[Finished]
    claims: Sequence[ClaimResult]
    runs: int
    """Number of simulated runs on test windows."""
    means: Means

    @property
    def systems(self) -> list[System]:
        """Return the systems, in the order of the study."""
        return list({one.system.name: one.system for one in self.finished}.values())


def document(data: StudyData) -> dict[str, Any]:
    """Return the study's results as JSON."""
    return {
        "planHash": data.hash,
        "runs": data.runs,
        "claims": [
            {"name": one.name, "rule": RULES[one.name], "answer": one.answer.value, "reason": one.reason}
            for one in data.claims
        ],
        "lagAdvantage": [
            {
                "figure": figure,
                "lag": row.lag,
                "advantage": {arm: _numbers(one) for arm, one in row.over.items()},
                "shareLeft": {arm: _numbers(one) for arm, one in row.left.items()},
                "collapsed": list(row.collapsed),
            }
            for figure in LAG_FIGURES
            for row in lag_rows(data.finished, figure)
        ],
        "experiments": {one.result.experiment: one.result.document() for one in data.finished},
        "training": {
            name: {"runs": one.runs, "curve": one.curve, "weights": one.weights}
            for name, one in data.training.items()
        },
        "operational": [
            {"system": system, "arm": arm, "condition": str(condition), "means": dict(found)}
            for (system, arm, condition), found in data.means.items()
        ],
    }


def markdown(data: StudyData) -> str:
    """Return the report."""
    return "\n\n".join(
        [
            "# Learned orchestration: which claims are seen here",
            f"Plan `{data.hash}`, fixed before the first run.",
            SIMULATED,
            _claims(data),
            _lag(data),
            _gains(data),
            _verdicts(data),
            *(_operational(data, system) for system in data.systems),
            _budgets(data),
            _controls(data),
            _remarks(data),
        ]
    )


def _numbers(one: Estimated | None) -> dict[str, float] | None:
    return None if one is None else {"value": one.value, "low": one.low, "high": one.high}


def _claims(data: StudyData) -> str:
    rows = [(one.name, f"**{one.answer.value}**", one.reason) for one in data.claims]
    rules = "\n".join(f"- **{one.name}**: {RULES[one.name]}" for one in data.claims)
    return f"## Claims\n\n{_table(('claim', 'answer', 'figures'), rows)}\n\n{INTERVALS}\n\n{rules}"


def _lag(data: StudyData) -> str:
    tables = [_lag_table(data, figure, unit) for figure, unit in LAG_FIGURES.items()]
    if not lag_rows(data.finished):
        return "## Lag advantage\n\nThe study had no autoscaler under lag."
    note = (
        "How much less the learned autoscaler degrades under lag than each comparator. Above 0 it is an "
        "advantage. A share is what is left of the advantage over the own comparator; it is given only where "
        "that advantage is shown. `robust` and `second` have no predictions, so they decide nothing."
    )
    system = next(one for one in data.systems if one.name == "autoscaling")
    arms = "\n".join(f"- `{arm}`: {_with_tuning(system, arm)}" for arm in LAG_ARMS)
    return "\n\n".join(["## Lag advantage", note, arms, *tables])


def _lag_table(data: StudyData, figure: str, unit: str) -> str:
    rows = [
        (
            f"{row.lag:g} s",
            *(_estimate(row.over.get(arm), arm in row.collapsed) for arm in LAG_ARMS),
            *(_estimate(row.left[arm]) for arm in LAG_ARMS if arm != OWN),
        )
        for row in lag_rows(data.finished, figure)
    ]
    columns = (
        "lag",
        *(f"over {arm}" for arm in LAG_ARMS),
        *(f"left, {arm}" for arm in LAG_ARMS if arm != OWN),
    )
    return f"In {figure} ({unit}):\n\n{_table(columns, rows)}"


def _estimate(one: Estimated | None, collapsed: bool = False) -> str:
    text = "-" if one is None else str(one)
    return f"{text}, collapsed" if collapsed else text


def _gains(data: StudyData) -> str:
    rows = []
    for system in data.systems:
        first = next(one for one in data.finished if one.system is system)
        for one in first.result.hypotheses:
            if one.prediction.startswith("gain-"):
                ratio = _span(one.ratio, one.ratio_low, one.ratio_high)
                rows.append((system.name, _with_tuning(system, one.comparator), ratio, _verdict(one)))
    note = "Learned / comparator in the primary figure; below 1 the learned controller is better."
    return (
        f"## Unperturbed\n\n{note}\n\n{_table(('system', 'comparator', 'ratio', 'learned is better'), rows)}"
    )


def _with_tuning(system: System, name: str) -> str:
    """Return an arm in words, with a mark if it is not tuned."""
    arm = next(one for one in system.arms if one.name == name)
    return arm.text if arm.search else f"{arm.text} (not tuned)"


def _verdicts(data: StudyData) -> str:
    rows = []
    for item in data.finished:
        for name in (f"{what}-{arm}" for what in ("degrades", "reversal") for arm in COMPARED):
            found = [one for one in item.result.hypotheses if one.prediction == name]
            cells = "; ".join(f"{one.magnitude:g}: {_verdict(one)} ({_effect(one)})" for one in found)
            rows.append((item.result.experiment, name, cells))
    note = (
        "`degrades-X`: the learned controller degrades more than X. `reversal-X`: it is worse than X under "
        "the perturbation. Effects are in the unit of the primary figure. Above 0 the learned controller is "
        "better."
    )
    columns = ("experiment", "prediction", "verdict at each magnitude")
    return f"## Verdicts\n\n{note}\n\n{_table(columns, rows)}"


def _operational(data: StudyData, system: System) -> str:
    texts = {arm.name: arm.text for arm in system.arms}
    texts |= {SAME: "learned, again", BROKEN: "learned, shuffled"}
    rows = [
        (
            str(condition),
            f"{arm}: {texts[arm]}",
            *(f"{found[name]:.4g}" for name in system.operational),
        )
        for (name_, arm, condition), found in data.means.items()
        if name_ == system.name
    ]
    columns = ("condition", "arm", *system.operational)
    return f"## Figures of {system.name}\n\nMeans over the test windows.\n\n{_table(columns, rows)}"


def _budgets(data: StudyData) -> str:
    rows = []
    for system in data.systems:
        tuned = {one["arm"]: one for one in data.tuning.get(system.name, ())}
        for arm in system.arms:
            one = tuned.get(arm.name)
            if one is None:
                rows.append((system.name, arm.text, "not tuned", "", ""))
                continue
            values = ", ".join(f"{_last(value['path'])}={_short(value['value'])}" for value in one["values"])
            edges = ", ".join(_last(value["path"]) for value in one["values"] if value["atEdge"])
            rows.append((system.name, arm.text, str(one["trials"]), values, edges))
    trained = "; ".join(f"{name}: {one.runs} runs" for name, one in data.training.items())
    note = (
        "All tuned arms get the same number of trials on the same windows. Training comes on top for the "
        f"learned arms, which favours them ({trained or 'no network was trained'}). The table of the "
        "autoscaler is trained anew in each trial."
    )
    columns = ("system", "arm", "trials", "chosen", "at the edge of its range")
    return f"## Tuning\n\n{note}\n\n{_table(columns, rows)}"


def _controls(data: StudyData) -> str:
    rows = [
        (item.result.experiment, one.name, "passed" if one.passed else "FAILED", one.message)
        for item in data.finished
        for one in item.result.controls
    ]
    return f"## Controls\n\n{_table(('experiment', 'control', 'result', 'meaning'), rows)}"


def _remarks(data: StudyData) -> str:
    lines = [
        f"- {system.name}: comparator `{arm.name}` ({arm.text}) is not tuned. A tuned one might do better."
        for system in data.systems
        for arm in system.arms
        if arm.name in COMPARED and not arm.search
    ]
    seen = dict.fromkeys(
        f"- {item.system.name}: {flag}." for item in data.finished for flag in item.result.flags
    )
    unaffected = [
        f"- {item.result.experiment}: the perturbation changes no run of `{arm}`, so this arm cannot degrade."
        for item in data.finished
        for arm in (LEARNED, *COMPARED)
        if item.is_unaffected(arm)
    ]
    missed = [
        f"- {item.result.experiment}: asked {asked:g}, reached {low:.3g} to {high:.3g}, by arm on average."
        for item in data.finished
        for asked, low, high in item.reached()
        if min(low, high) < (1 - NEAR) * asked or high > (1 + NEAR) * asked
    ]
    return "## Remarks\n\n" + "\n".join(
        [*lines, *unaffected, *seen, *missed, f"- Windows: {_windows(data)}."]
    )


def _windows(data: StudyData) -> str:
    return "; ".join(
        f"{name} {use} {digest}"
        for name, found in data.plan["windows"].items()
        for use, digest in found.items()
    )


def mean_figures(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each figure."""
    listed = list(figures)
    return {name: math.fsum(one[name] for one in listed) / len(listed) for name in listed[0]}


def _verdict(one: HypothesisResult) -> str:
    return one.verdict.value if one.verdict else "none"


def _effect(one: HypothesisResult) -> str:
    return _span(one.effect, one.low, one.high)


def _span(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} [{low:.3g}, {high:.3g}]"


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _short(value: str) -> str:
    try:
        return f"{float(value):.3g}"
    except ValueError:
        return value


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_lines(columns, rows))


def _lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(row)} |"
