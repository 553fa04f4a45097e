"""The plots of a report, as SVG texts for an HTML page. Equal results give equal texts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_plan import Better, Outcome, Perturbation
from convoy_crds.perturbations import perturbation_type
from convoy_workloads.experiments.result import HypothesisResult, Level, Result
from convoy_workloads.experiments.tables import where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot = tuple[str, Callable[[], str]]
"""Title of a plot, and the function that draws it as SVG. Only drawing needs matplotlib."""
_COLOURS = {
    "Supported": "#1a7f37",
    "Contradicted": "#cf222e",
    "ComparatorCollapsed": "#9a6700",
    "Undecided": "#57606a",
}
_WIDTH, _ROW = 8.0, 0.45
_FEW_PLACES = 2
"""Number of magnitudes whose labels cannot overlap, so that each one gets its own."""
_SETTINGS: Any = {
    "svg.hashsalt": "convoy",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
_PROLOGUE = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>", re.DOTALL)


def forest(spec: ExperimentSpec, result: Result) -> list[Plot]:
    """Return a plot for each predicted outcome: the effects with their intervals, and the
    difference of each pair.
    """
    found: list[Plot] = []
    for outcome in dict.fromkeys(one.outcome for one in result.hypotheses):
        rows = [one for one in result.hypotheses if one.outcome == outcome]
        title = f"Effects on {outcome}. Dot: mean; line: interval; ticks: pairs; crosses: margin"
        labels = [f"{one.prediction}, {where(spec, one)}" for one in rows]
        found.append((title, partial(_draw, partial(_forest, rows=rows, labels=labels), len(rows))))
    return found


def curves(spec: ExperimentSpec, result: Result) -> list[Plot]:
    """Return a plot for each outcome and perturbation: the arms' means over the magnitude. Control arms are
    left out, because their values would stretch the axis. Outcomes without a direction are equal in all arms.
    """
    shown = {arm.name for arm in spec.arms if arm.control_of is None}
    found: list[Plot] = []
    for outcome in spec.outcomes:
        if outcome.better is Better.NEITHER:
            continue
        for one in spec.perturbations or ():
            rows = [
                level
                for level in result.levels
                if level.arm in shown
                and level.outcome == outcome.name
                and level.perturbation in {"", one.name}
            ]
            if rows:
                title = f"{outcome.name} under {one.name}"
                found.append((title, partial(_draw, _curve_drawer(one, rows, outcome), 6)))
    return found


def _forest(axes: Axes, rows: Sequence[HypothesisResult], labels: Sequence[str]) -> None:
    places = range(len(rows))
    for place, one in zip(places, rows, strict=True):
        colour = _COLOURS[one.verdict.value if one.verdict else "Undecided"]
        axes.plot(one.differences, [place + 0.18] * len(one.differences), "|", color=colour, alpha=0.5)
        if one.effect is not None:
            axes.plot([one.effect], [place - 0.08], "o", color=colour)
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [place - 0.08] * 2, "-", color=colour)
        if one.margin:
            axes.plot([-one.margin, one.margin], [place - 0.3] * 2, "x", color="#999999", markersize=4)
    axes.axvline(0, color="#24292f", linewidth=0.8)
    axes.set_yticks(list(places), labels)
    axes.set_ylim(len(rows) - 0.5, -0.6)
    unit = f" in {rows[0].unit}" if rows[0].unit else ""
    axes.set_xlabel(f"difference of candidate and comparator{unit}; right: the candidate is better")


def _curve_drawer(
    perturbation: Perturbation, rows: Sequence[Level], outcome: Outcome
) -> Callable[[Axes], None]:
    kind = perturbation_type(perturbation.kind)

    def draw(axes: Axes) -> None:
        places: set[float] = set()
        for arm in dict.fromkeys(one.arm for one in rows):
            points = sorted(_points(rows, arm, kind.neutral))
            low = [max(0.0, mean - low) for _, mean, low, _ in points]
            high = [max(0.0, high - mean) for _, mean, _, high in points]
            places.update(x for x, *_ in points)
            axes.errorbar(
                [x for x, *_ in points],
                [mean for _, mean, *_ in points],
                yerr=[low, high],
                marker="o",
                markersize=3,
                capsize=3,
                linewidth=1,
                label=arm,
            )
        axes.set_xlabel(f"{perturbation.name} ({perturbation.kind}) in {kind.unit}")
        if len(places) <= _FEW_PLACES:
            axes.set_xticks(sorted(places))
        axes.set_ylabel(outcome.name + (f" in {outcome.unit}" if outcome.unit else ""))
        axes.legend(title="mean, 95 % interval", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

    return draw


def _points(
    rows: Iterable[Level], arm: str, neutral: float | None
) -> Iterable[tuple[float, float, float, float]]:
    """Yield magnitude, mean and interval of an arm's points. The unperturbed condition stands at the neutral
    magnitude.
    """
    for one in rows:
        x = one.magnitude if one.perturbation else neutral
        if one.arm == arm and x is not None:
            yield x, one.mean, _or(one.low, one.mean), _or(one.high, one.mean)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _draw(draw: Callable[[Axes], None], rows: int) -> str:
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, 1.2 + _ROW * rows), layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _PROLOGUE.sub("", text.getvalue()).strip()
