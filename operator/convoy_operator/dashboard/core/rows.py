"""Tables as data: cells, rows, and the selection of the rows to show."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

_NUMBERS = re.compile(r"\d+")


class Tone(StrEnum):
    """The meaning of a cell's colour. The text of the cell always says the same, so colour is never the
    only sign.
    """

    PLAIN = ""
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in a row."""

    text: str
    tone: Tone = Tone.PLAIN
    href: str = ""
    """Path of the dashboard page to which the cell links; empty if the cell has no link."""
    order: float | str | None = None
    """Value to sort the cell by. If None, the cell is sorted by its text."""
    share: float | None = None
    """Share from 0 to 1 that is drawn as a bar behind the text; None draws no bar."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    label: str
    number: bool = False
    badge: bool = False
    """True if the cells are badges: words from a small set, such as phases."""
    wide: bool = False
    """True if the column takes the remaining width and wraps its text."""
    brief: bool = False
    """True if only the first lines of a cell are shown. The page behind the row's link shows the whole
    text.
    """
    link: bool = False
    """True if cells may link to another page."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with one cell per column."""

    key: str
    cells: tuple[Cell, ...]
    group: str = ""
    """Value by which a user can filter the table: a job's phase or a node's state."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The filter, the order and the page that a user chose for a table."""

    words: str = ""
    """Words of the filter. A row must contain all of them."""
    group: str = ""
    column: int | None = None
    """Index of the column to sort by. If None, the rows keep their order."""
    descending: bool = False
    page: int = 0
    """Page number from 0."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a table's rows."""

    rows: tuple[Row, ...]
    matching: int
    total: int
    page: int
    """Number of this page, from 0. If a page after the last one was requested, this is the last page."""
    pages: int
    """Number of pages, at least 1."""


def natural(text: str) -> str:
    """Return a sort key that puts node-2 before node-10."""
    return _NUMBERS.sub(lambda found: found[0].zfill(12), text.lower())


def _order(cell: Cell) -> tuple[int, float, str]:
    value = cell.order if cell.order is not None else cell.text
    if isinstance(value, str):
        return (1, 0.0, natural(value))
    return (0, value, "")


def arrange(rows: Sequence[Row], choice: Choice, size: int) -> Listing:
    """Filter and sort the rows, and return the requested page of `size` rows."""
    words = choice.words.lower().split()
    found = [
        row
        for row in rows
        if (not choice.group or row.group == choice.group) and (not words or _holds(row, words))
    ]
    column = choice.column
    if column is not None:
        known = [row for row in found if row.cells[column].text not in ("-", "")]
        unknown = [row for row in found if row.cells[column].text in ("-", "")]
        known.sort(key=lambda row: _order(row.cells[column]), reverse=choice.descending)
        found = known + unknown
    pages = max(1, -(-len(found) // size))
    page = min(max(0, choice.page), pages - 1)
    shown = tuple(found[page * size : (page + 1) * size])
    return Listing(shown, len(found), len(rows), page, pages)


def _holds(row: Row, words: Collection[str]) -> bool:
    text = "\n".join(cell.text for cell in row.cells).lower()
    return all(word in text for word in words)
