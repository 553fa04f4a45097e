"""The part of a page's query string that holds a user's choice of table rows."""

from __future__ import annotations

from collections.abc import Mapping

from convoy_operator.dashboard.core.rows import Choice

MAX_TEXT = 200
"""Maximum number of characters of the filter's words, and of the group."""
_MAX_DIGITS = 6


def parse_choice(query: Mapping[str, str], table: str, columns: int) -> Choice:
    """Return the choice for the table from a page's query. Invalid values are ignored."""
    sort = query.get(f"{table}.sort", "")
    column = _number(sort.removeprefix("-"))
    known = column is not None and 1 <= column <= columns
    return Choice(
        words=query.get(f"{table}.words", "")[:MAX_TEXT],
        group=query.get(f"{table}.is", "")[:MAX_TEXT],
        column=column - 1 if column is not None and known else None,
        descending=known and sort.startswith("-"),
        page=max(1, _number(query.get(f"{table}.page", "")) or 1) - 1,
    )


def format_choice(table: str, chosen: Choice) -> dict[str, str]:
    """Return the query values for a choice, without default values."""
    sign = "-" if chosen.descending else ""
    values = {
        "words": chosen.words,
        "is": chosen.group,
        "sort": f"{sign}{chosen.column + 1}" if chosen.column is not None else "",
        "page": str(chosen.page + 1) if chosen.page else "",
    }
    return {f"{table}.{name}": value for name, value in values.items() if value}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
