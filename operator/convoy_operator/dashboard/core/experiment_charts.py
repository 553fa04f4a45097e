"""The charts of an Experiment's page, as options for the ECharts library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import Verdict, VerdictStatus
from convoy_crds.experiment_summary import arm_labels, summarise
from convoy_operator.dashboard.core.charts import (
    BLUE,
    DIGITS,
    GREY,
    ORANGE,
    TEAL,
    VIOLET,
    Options,
    rows_plot,
)
from convoy_operator.dashboard.core.experiment import verdict_condition

MAX_ROWS = 24
"""Maximum number of rows of a chart. The tables show all."""
_COLOURS = {
    Verdict.SUPPORTED: TEAL,
    Verdict.CONTRADICTED: ORANGE,
    Verdict.UNDECIDED: GREY,
    Verdict.COMPARATOR_COLLAPSED: VIOLET,
}


@dataclass(frozen=True, slots=True)
class RowChart:
    """A chart with one row for each arm or verdict."""

    title: str
    rows: int
    options: Options
    left_out: int = 0
    """Number of rows that the chart has no room for."""


def value_charts(experiment: Experiment) -> list[RowChart]:
    """Return a chart for each outcome. It shows the value of each run, and the medians, by condition and
    arm. Outcomes without a value are left out.
    """
    cells, arms = summarise(experiment), arm_labels(experiment.spec)
    found = []
    for outcome in experiment.spec.outcomes:
        every = [(f"{arm}, {cell.title}", cell.sample(arm, outcome.name)) for cell in cells for arm in arms]
        known = [(label, sample) for label, sample in every if sample.values]
        if not known:
            continue
        shown = known[:MAX_ROWS]
        values = [[_short(one), row] for row, (_, sample) in enumerate(shown) for one in sample.values]
        medians = [[_short(sample.median), row] for row, (_, sample) in enumerate(shown)]
        series = [
            _scatter("runs", values, BLUE, symbolSize=8, opacity=0.5),
            _scatter("median", medians, ORANGE, symbolSize=14, symbol="diamond"),
        ]
        options = rows_plot([label for label, _ in shown], outcome.unit, series)
        found.append(RowChart(outcome.name, len(shown), options, len(known) - len(shown)))
    return found


def forest_charts(experiment: Experiment) -> list[RowChart]:
    """Return a forest plot for each outcome with verdicts: the effect of each prediction, and its confidence
    interval. Right of 0, the candidate is better.
    """
    predictions = {one.name: one for one in experiment.spec.predictions or ()}
    found = []
    for outcome in experiment.spec.outcomes:
        known = [
            one
            for one in experiment.status.verdicts
            if one.effect is not None
            and one.prediction in predictions
            and predictions[one.prediction].outcome == outcome.name
        ]
        if known:
            shown = known[:MAX_ROWS]
            labels = [f"{one.prediction}, {verdict_condition(experiment, one)}" for one in shown]
            unit = f" ({outcome.unit})" if outcome.unit else ""
            options = rows_plot(labels, f"effect{unit}; above 0 the candidate is better", _forest(shown))
            found.append(RowChart(f"Effect on {outcome.name}", len(shown), options, len(known) - len(shown)))
    return found


def _forest(shown: Sequence[VerdictStatus]) -> list[Options]:
    """Return a series of intervals and a series of effects for each kind of verdict, and a line at 0."""
    series: list[Options] = []
    for verdict, colour in _COLOURS.items():
        mine = [(row, one) for row, one in enumerate(shown) if one.verdict is verdict]
        if not mine:
            continue
        points: list[Any] = []
        for row, one in mine:
            if one.low is not None and one.high is not None:
                # An empty point ends the line of an interval.
                points += [[_short(one.low), row], [_short(one.high), row], ["-", "-"]]
        series.append(
            {
                "name": verdict.value,
                "type": "line",
                "data": points,
                "symbol": "none",
                "lineStyle": {"width": 3, "color": colour},
                "itemStyle": {"color": colour},
            }
        )
        effects = [[_short(one.effect), row] for row, one in mine]
        series.append(_scatter(verdict.value, effects, colour, symbolSize=12))
    series[0]["markLine"] = {
        "silent": True,
        "symbol": "none",
        "label": {"show": False},
        "lineStyle": {"color": GREY, "type": "dashed"},
        "data": [{"xAxis": 0}],
    }
    return series


def _scatter(name: str, points: list[list[Any]], colour: str, opacity: float = 1.0, **style: Any) -> Options:
    item = {"color": colour, "opacity": opacity}
    return {"name": name, "type": "scatter", "data": points, "itemStyle": item, **style}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
