"""Tables as data: cells, rows, and the selection of rows to show."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

_NUMBERS = re.compile(r"\d+")


class Tone(StrEnum):
    """The tone of a cell. Colour is never the only sign: the text has the same meaning."""

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
    """Path of a page of the dashboard."""
    order: float | str | None = None
    """Sort key. If None, the text."""
    share: float | None = None
    """A share from 0 to 1, drawn as a bar behind the text."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column."""

    label: str
    number: bool = False
    badge: bool = False
    """True if the cells contain words of a small set."""
    wide: bool = False
    """True if the column takes the remaining width and wraps its text."""
    brief: bool = False
    """True if only the first lines are shown. The page behind the row's link has the whole text."""
    link: bool = False
    """True if cells may link to another page."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with one cell per column."""

    key: str
    cells: tuple[Cell, ...]
    group: str = ""
    """The value to filter by: a job's phase or a node's state."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A reader's filter, order and page of a table."""

    words: str = ""
    """Words that must all occur in a row."""
    group: str = ""
    column: int | None = None
    """Column to sort by. If None, the order is unchanged."""
    descending: bool = False
    page: int = 0
    """Page number from 0."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of a table that a page shows."""

    rows: tuple[Row, ...]
    matching: int
    total: int
    page: int
    """Page number from 0: the last page if a later one was requested."""
    pages: int
    """At least 1."""


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
