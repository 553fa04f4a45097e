"""Tables as data: cells, rows, and which of them are shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

_NUMBERS = re.compile(r"\d+")


class Tone(StrEnum):
    """How a cell is meant. Never said by colour alone: the text says it too."""

    PLAIN = ""
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a row."""

    text: str
    tone: Tone = Tone.PLAIN
    href: str = ""
    """A page of the dashboard."""
    order: float | str | None = None
    """What it is sorted by; its text without one."""
    share: float | None = None
    """0 to 1, drawn as a bar behind the text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    label: str
    number: bool = False
    badge: bool = False
    """Its cells are words of a small set."""
    wide: bool = False
    """Takes what room is left, and wraps."""
    brief: bool = False
    """Shows the first lines of its text; all of it is on the page that the row leads to."""
    link: bool = False
    """Its cells may lead to another page."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line, with as many cells as there are columns."""

    key: str
    cells: tuple[Cell, ...]
    group: str = ""
    """What can be chosen by: the phase of a job, the state of a node."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader has asked to see of a table."""

    words: str = ""
    """All of them must be somewhere in the row."""
    group: str = ""
    column: int | None = None
    """Sorted by this one; as given without one."""
    descending: bool = False
    page: int = 0
    """From 0."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is shown of a table."""

    rows: tuple[Row, ...]
    matching: int
    total: int
    page: int
    """From 0; the last one when a later one was asked for."""
    pages: int
    """At least 1."""


def natural(text: str) -> str:
    """A key that puts node-2 before node-10."""
    return _NUMBERS.sub(lambda found: found[0].zfill(12), text.lower())


def _order(cell: Cell) -> tuple[int, float, str]:
    value = cell.order if cell.order is not None else cell.text
    if isinstance(value, str):
        return (1, 0.0, natural(value))
    return (0, value, "")


def arrange(rows: Sequence[Row], choice: Choice, size: int) -> Listing:
    """The page of `size` rows that was asked for."""
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
