"""Charts whose number and height follow their data."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from convoy_operator.dashboard.core.experiment_charts import RowChart
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, set_text, text


class RowCharts:
    """A group of charts with one row for each arm or verdict."""

    def __init__(self, label: str) -> None:
        self._section = box("div", role="group", aria_label=label)
        self._known: dict[str, tuple[ui.element, Chart, TextElement]] = {}

    def show(self, charts: Sequence[RowChart]) -> None:
        """Draw these charts. Charts that are no longer among them are removed."""
        for title in set(self._known).difference(one.title for one in charts):
            self._known.pop(title)[0].delete()
        for one in charts:
            if one.title not in self._known:
                with self._section, box("div") as group:
                    text("h3", one.title)
                    self._known[one.title] = (group, Chart(one.title, one.options), text("p", "", "quiet"))
            group, chart, note = self._known[one.title]
            group.style(f"--rows: {one.rows}")
            chart.draw(one.options)
            set_text(note, f"{one.left_out} more rows are in the table." if one.left_out else "")
