"""The table of an object's conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from convoy_crds.meta import Condition
from convoy_operator.dashboard.core.formatting import ago
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

COLUMNS = (
    Column("Type"),
    Column("Status", badge=True),
    Column("Since", number=True),
    Column("Reason", wide=True),
)


def rows(conditions: Iterable[Condition], now: datetime, status: Callable[[Condition], Cell]) -> list[Row]:
    """Return the conditions as table rows. `status` returns the cell of a condition's status."""
    return [
        Row(
            one.type,
            (
                Cell(one.type),
                status(one),
                Cell(ago(one.last_transition_time, now), order=-one.last_transition_time.timestamp()),
                Cell(f"{one.reason}: {one.message}" if one.message else one.reason),
            ),
        )
        for one in conditions
    ]


def good_if_true(one: Condition) -> Cell:
    """Return the cell of a condition that is True when all is well."""
    return Cell(one.status, Tone.GOOD if one.status == "True" else Tone.WARN)


def marked(one: Condition, problem: bool) -> Cell:
    """Return the cell of a condition, marked if its status shows a problem."""
    return Cell(f"{one.status} (problem)" if problem else one.status, Tone.WARN if problem else Tone.PLAIN)
