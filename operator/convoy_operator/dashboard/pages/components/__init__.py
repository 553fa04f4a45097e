"""Elements that have a Vue component of their own: fields, the query of the browser's address, and charts.
Plain HTML elements cannot do what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nicegui import ui
from nicegui.elements import echart
from nicegui.events import GenericEventArguments

MAX_WORDS = 200
"""Maximum number of characters that a field accepts."""


@dataclass(frozen=True, slots=True)
class Number:
    """The bounds of a field for whole numbers: the field accepts 0 to `maximum`."""

    maximum: int
    anchor: str = ""
    """Anchor of the field. The browser scrolls to the field if the page's address ends with this anchor."""


class Field(ui.element, component="field.js"):
    """A native text input, number input or select."""

    def __init__(
        self,
        label: str,
        changed: Callable[[str], Any],
        *,
        hint: str = "",
        choices: Sequence[tuple[str, str]] = (),
        number: Number | None = None,
        start: str = "",
    ) -> None:
        """Create the field. `choices`, as pairs (value, text), make it a select. `number` makes it a number
        input.

        `changed` is called with each new value. `start` is the initial value.
        """
        super().__init__()
        self.props["label"] = label
        self.props["kind"] = "select" if choices else "number" if number else "search"
        self.props["hint"] = hint
        self.props["start"] = start
        self.props["anchor"] = number.anchor if number else ""
        self.props["choices"] = [list(choice) for choice in choices]
        if number is not None:
            self.props["least"], self.props["most"] = 0, number.maximum

        def on_change(event: GenericEventArguments) -> None:
            changed(str(event.args)[:MAX_WORDS])

        self.on("changed", on_change, throttle=0.1, leading_events=False)

    def set_choices(self, choices: Sequence[tuple[str, str]]) -> None:
        """Set the choices if they differ."""
        found = [list(choice) for choice in choices]
        if self.props["choices"] != found:
            self.props["choices"] = found


class AddressQuery(ui.element, component="address_query.js"):
    """The query string in the browser's address. It consists of named parts, such as the filters of one
    table.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[str, dict[str, str]] = {}

    def set_part(self, part: str, values: Mapping[str, str]) -> None:
        """Replace the values of one part of the query."""
        self._parts[part] = dict(values)
        query = urlencode([pair for values in self._parts.values() for pair in values.items()])
        if self.query != query:
            self.props["query"] = query

    @property
    def query(self) -> str:
        """Return the whole query; empty if no part has values."""
        return str(self.props.get("query", ""))


class Chart(
    ui.element, component="chart.js", esm={"nicegui-echart": str(Path(echart.__file__).parent / "dist")}
):
    """An ECharts chart that is redrawn when its options change."""

    def __init__(self, label: str, options: dict[str, Any]) -> None:
        super().__init__()
        self._update_method = "draw"
        self.props["label"] = label
        self.props["options"] = options

    def draw(self, options: dict[str, Any]) -> None:
        """Draw the chart with these options, unless they are already drawn."""
        if self.props["options"] != options:
            self.props["options"] = options
