"""The body of a table. A whole row is one NiceGUI element, because each element needs some kilobytes of
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from convoy_operator.dashboard.core.formatting import visible
from convoy_operator.dashboard.core.rows import Cell, Column, Row

_KINDS = ("number", "badge", "wide", "brief", "link")


class TableBody(ui.element, component="table_body.js"):
    """The element that contains a table's rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.props["columns"] = [
            {"label": column.label, **{name: True for name in _KINDS if getattr(column, name)}}
            for column in columns
        ]
        self._known: dict[str, TableRow] = {}

    def show(self, rows: Sequence[Row]) -> None:
        """Show the rows in this order. A row that moves keeps its element, and so the focus."""
        rows = unique(rows)
        keys = [row.key for row in rows]
        for key in set(self._known).difference(keys):
            self._known.pop(key).delete()
        with self:
            made = {row.key: TableRow(row) for row in rows if row.key not in self._known}
        for row in rows:
            if row.key in self._known:
                self._known[row.key].show(row)
        lines = {**self._known, **made}
        self._known = {key: lines[key] for key in keys}
        found: list[ui.element] = list(self._known.values())
        if self.default_slot.children != found:
            self.default_slot.children[:] = found
            self.update()


def unique(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without repeated keys. An object's status may contain the same key twice."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        seen[row.key] += 1
        found.append(replace(row, key=f"{row.key} ({seen[row.key]})") if seen[row.key] > 1 else row)
    return found


class TableRow(ui.element, component="table_row.js"):
    """The element of one row."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row
        self.props["data-key"] = row.key
        self.props["cells"] = packed(row)

    def show(self, row: Row) -> None:
        """Replace the content of the element by the cells of `row`."""
        if row is self._row:
            return
        before, self._row = self._row, row
        if row.cells != before.cells:
            self.props["cells"] = packed(row)


def packed(row: Row) -> list[list[Any]]:
    """Return the cells of a row in the format of table_row.js: text, tone, link, and share in percent.
    Trailing empty values are left out.
    """
    return [_packed(cell) for cell in row.cells]


def _packed(cell: Cell) -> list[Any]:
    text = visible(cell.text)
    if cell.share is not None:
        return [text, cell.tone.value, cell.href, round(100 * cell.share, 1)]
    if cell.href:
        return [text, cell.tone.value, cell.href]
    return [text, cell.tone.value] if cell.tone else [text]
