"""What a reader has asked to see of a table, as the address of the page says it."""

from __future__ import annotations

from collections.abc import Mapping

from convoy_operator.dashboard.core.rows import Choice

MOST_TEXT = 200
"""Characters of words, and of a group."""
_MOST_DIGITS = 6


def parse_choice(query: Mapping[str, str], table: str, columns: int) -> Choice:
    """What the address asks for; what cannot be is left out."""
    sort = query.get(f"{table}.sort", "")
    column = _number(sort.removeprefix("-"))
    known = column is not None and 1 <= column <= columns
    return Choice(
        words=query.get(f"{table}.words", "")[:MOST_TEXT],
        group=query.get(f"{table}.is", "")[:MOST_TEXT],
        column=column - 1 if column is not None and known else None,
        descending=known and sort.startswith("-"),
        page=max(1, _number(query.get(f"{table}.page", "")) or 1) - 1,
    )


def format_choice(table: str, chosen: Choice) -> dict[str, str]:
    """What the address says of a choice; nothing of what nobody has asked for."""
    sign = "-" if chosen.descending else ""
    said = {
        "words": chosen.words,
        "is": chosen.group,
        "sort": f"{sign}{chosen.column + 1}" if chosen.column is not None else "",
        "page": str(chosen.page + 1) if chosen.page else "",
    }
    return {f"{table}.{name}": value for name, value in said.items() if value}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
