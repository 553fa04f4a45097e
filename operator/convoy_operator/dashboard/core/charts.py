"""Options for the ECharts library. The greys are readable on both a white and a black background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any

from convoy_operator.dashboard.core.distribution import Strip
from convoy_operator.dashboard.core.series import Curve, MetricCurve
from convoy_operator.dashboard.core.traffic_series import TrafficCurve

GREY = "#7a8594"
GRID = "rgba(128,138,150,0.25)"
BLUE = "#3d8bfd"
TEAL = "#12a594"
ORANGE = "#e5762c"
VIOLET = "#8f7ee0"
REDRAW_SECONDS = 30
"""Seconds by which a curve over time grows at once if its values do not change."""
DIGITS = 6
"""Number of significant digits of a plotted value."""
NO_VALUES = "No values yet"
"""Text in a chart without values."""
_NOTE = {"fontSize": 13, "fontWeight": "normal"}

Options = dict[str, Any]


def _axis(**more: Any) -> Options:
    return {
        "axisLabel": {"color": GREY, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": GREY}},
        "splitLine": {"lineStyle": {"color": GRID}},
        "nameTextStyle": {"color": GREY},
        **more,
    }


def _common() -> Options:
    return {
        "animation": False,
        "backgroundColor": "transparent",
        "textStyle": {"fontFamily": "system-ui, sans-serif"},
        # Use richText tooltips: they are drawn on the canvas, so their text is never parsed as HTML.
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "grid": {"left": 8, "right": 28, "top": 34, "bottom": 8, "containLabel": True},
    }


def line(curve: Curve | None, values: str, unit: str, colour: str) -> Options:
    """Return a plot of a curve over the steps. `values` is `losses` or `rates`."""
    points: list[list[float]] = []
    if curve is not None:
        reported: Sequence[float] = getattr(curve, values)
        points = [
            [step, float(f"{value:.{DIGITS}g}")]
            for step, value in zip(curve.steps, reported, strict=True)
            if not isnan(value)
        ]
    return _plot(points, _x_axis("step", type="value", scale=True), unit, colour)


def metric(curve: MetricCurve, unit: str) -> Options:
    """Return a plot of a metric that the job's program reports, over the steps of the reports."""
    points = [
        [step, float(f"{value:.{DIGITS}g}")]
        for step, value in zip(curve.steps, curve.values, strict=True)
        if not isnan(value)
    ]
    return _plot(points, _x_axis("step", type="value", scale=True), unit, ORANGE)


def progress(curve: Curve | None) -> Options:
    """Return a plot of the step over time. When the job returns to a checkpoint, the line falls at that
    time instead of sloping down.
    """
    points: list[list[float]] = []
    for at, step in zip(curve.times, curve.steps, strict=True) if curve is not None else ():
        if points and step < points[-1][1]:
            points.append([round(1000 * at), points[-1][1]])
        points.append([round(1000 * at), step])
    return {**_plot(points, _x_axis("time (UTC)", type="time"), "step", VIOLET), "useUTC": True}


def traffic(curve: TrafficCurve | None, lines: Mapping[str, str], unit: str, now: datetime) -> Options:
    """Return a plot of values of a ServingJob over time. `lines` maps the curve's fields to their labels.
    A value holds until the next one, and the newest until now.
    """
    options = _plot([], _x_axis("time (UTC)", type="time"), unit, BLUE)
    series, some = [], False
    for (name, label), colour in zip(lines.items(), (BLUE, ORANGE), strict=False):
        values: Sequence[float] = getattr(curve, name) if curve is not None else ()
        times: Sequence[float] = curve.times if curve is not None else ()
        points: list[list[float | None]] = [
            [round(1000 * at), None if isnan(value) else float(f"{value:.{DIGITS}g}")]
            for at, value in zip(times, values, strict=True)
        ]
        some = some or any(value is not None for _, value in points)
        if points:
            until = max(points[-1][0] or 0, now.timestamp() // REDRAW_SECONDS * REDRAW_SECONDS * 1000)
            points.append([until, points[-1][1]])
        style = {"lineStyle": {"width": 2, "color": colour}, "itemStyle": {"color": colour}}
        series.append(
            {"name": label, "type": "line", "step": "end", "data": points, "showSymbol": False, **style}
        )
    legend = {"textStyle": {"color": GREY}, "top": 0, "right": 0, "data": list(lines.values())}
    shown = {axis: {**options[axis], "show": some} for axis in ("xAxis", "yAxis")}
    legend["show"] = some
    return {**options, **_empty(not some), **shown, "legend": legend, "series": series, "useUTC": True}


def _x_axis(name: str, **more: Any) -> Options:
    """Return the options of the x axis."""
    return _axis(name=name, nameLocation="middle", nameGap=26, **more)


def _empty(is_empty: bool) -> Options:
    """Return the options of the text of an empty chart. A chart with values also has them, because ECharts
    keeps earlier options.
    """
    title = {"text": NO_VALUES, "left": "center", "top": "middle", "textStyle": {**_NOTE, "color": GREY}}
    return {"title": {**title, "show": is_empty}}


def _plot(points: Sequence[Sequence[float]], x_axis: Options, unit: str, colour: str) -> Options:
    common, some = _common(), bool(points)
    return {
        **common,
        **_empty(not some),
        "xAxis": {**x_axis, "show": some},
        "grid": {**common["grid"], "bottom": 26},
        "yAxis": _axis(
            type="value", name=unit, scale=True, show=some, nameTextStyle={"color": GREY, "align": "left"}
        ),
        "series": [
            {
                "type": "line",
                "data": points,
                "showSymbol": len(points) < 40,
                "symbolSize": 5,
                "lineStyle": {"width": 2, "color": colour},
                "itemStyle": {"color": colour},
            }
        ],
    }


def rows_plot(labels: Sequence[str], axis: str, series: Sequence[Options]) -> Options:
    """Return a plot with one row for each label. A point is a value and the number of its row. `axis`: name
    of the axis of the values.
    """
    options = _common()
    names = list(dict.fromkeys(one["name"] for one in series))
    return {
        **options,
        "tooltip": {**options["tooltip"], "trigger": "item"},
        "legend": {"textStyle": {"color": GREY}, "top": 0, "data": names},
        "xAxis": _x_axis(axis, type="value", scale=True),
        "yAxis": _axis(type="category", data=list(labels), inverse=True),
        "grid": {**options["grid"], "bottom": 30},
        "series": list(series),
    }


def strips(found: Sequence[Strip]) -> Options:
    """Return a plot with one row of points for each metric, in percent of the median of the hardware class.
    The row shows this node and the other nodes of the class.
    """
    labels = [strip.name for strip in found]
    others = [[round(value, 3), row] for row, strip in enumerate(found) for value in strip.others]
    own = [[round(value, 3), row] for row, strip in enumerate(found) for value in strip.own]
    options = _common()
    return {
        **options,
        "tooltip": {**options["tooltip"], "trigger": "item"},
        "legend": {"textStyle": {"color": GREY}, "top": 0, "data": ["other nodes", "this node"]},
        "xAxis": _axis(type="value", name="% of median", nameLocation="middle", nameGap=26, scale=True),
        "yAxis": _axis(type="category", data=labels, inverse=True),
        "grid": {**options["grid"], "bottom": 30},
        "series": [
            {
                "name": "other nodes",
                "type": "scatter",
                "data": others,
                "symbolSize": 9,
                "itemStyle": {"color": GREY, "opacity": 0.45},
            },
            {
                "name": "this node",
                "type": "scatter",
                "symbol": "diamond",
                "data": own,
                "symbolSize": 16,
                "itemStyle": {"color": ORANGE},
                "markLine": {
                    "silent": True,
                    "symbol": "none",
                    "label": {"show": False},
                    "lineStyle": {"color": GREY, "type": "dashed"},
                    "data": [{"xAxis": 100}],
                },
            },
        ],
    }
