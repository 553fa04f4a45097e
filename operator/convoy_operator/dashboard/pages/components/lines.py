"""The body of a table: one element a line, since an element of NiceGUI costs some kilobytes of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from convoy_operator.dashboard.core.rows import Cell, Column, Row
from convoy_operator.dashboard.core.words import visible

_KINDS = ("number", "badge", "wide", "brief", "link")


class Lines(ui.element, component="lines.js"):
    """What the lines of one table are made in."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.props["columns"] = [
            {"label": column.label, **{name: True for name in _KINDS if getattr(column, name)}}
            for column in columns
        ]


class Line(ui.element, component="line.js"):
    """One line; which row it shows changes."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row
        self.props["data-key"] = row.key
        self.props["cells"] = packed(row)

    def show(self, row: Row) -> None:
        """Shows that row."""
        if row is self._row:
            return
        before, self._row = self._row, row
        if row.key != before.key:
            self.props["data-key"] = row.key
        if row.cells != before.cells:
            self.props["cells"] = packed(row)


def packed(row: Row) -> list[list[Any]]:
    """The cells as line.js takes them: text, tone, link and share in percent, without what is left empty."""
    return [_packed(cell) for cell in row.cells]


def _packed(cell: Cell) -> list[Any]:
    text = visible(cell.text)
    if cell.share is not None:
        return [text, cell.tone.value, cell.href, round(100 * cell.share, 1)]
    if cell.href:
        return [text, cell.tone.value, cell.href]
    return [text, cell.tone.value] if cell.tone else [text]
