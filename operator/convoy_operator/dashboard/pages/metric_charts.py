"""One chart for each metric that a job's program reports."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from convoy_crds.engine import EngineMetric
from convoy_operator.dashboard.core import charts
from convoy_operator.dashboard.core.series import MetricCurve
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, text


class MetricCharts:
    """The charts of a job page. They are added and removed as the job's metrics change."""

    def __init__(self) -> None:
        self._section = box("div", "charts", role="group", aria_label="Metrics over steps")
        self._known: dict[str, tuple[ui.element, Chart]] = {}

    def show(self, curves: Mapping[str, MetricCurve], declared: Mapping[str, EngineMetric]) -> None:
        """Draw a chart for each of these curves. `declared` holds the Engine's description of each metric."""
        for name in set(self._known).difference(curves):
            self._known.pop(name)[0].delete()
        for name, curve in curves.items():
            unit = declared[name].unit if name in declared else ""
            options = charts.metric(curve, unit)
            if name not in self._known:
                with self._section, box("div") as group:
                    text("h3", name)
                    self._known[name] = (group, Chart(f"{name} over steps", options))
            self._known[name][1].draw(options)
