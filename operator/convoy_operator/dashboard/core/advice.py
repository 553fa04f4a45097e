"""The findings of the rules of advice that a job is checked against."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_crds.advice import AdviceFinding, Severity
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

COLUMNS = (
    Column("Rule"),
    Column("Severity", badge=True),
    Column("Finding", wide=True),
    Column("Remedy", wide=True),
)


def rows(findings: Iterable[AdviceFinding]) -> list[Row]:
    """Return the findings as table rows."""
    return [
        Row(
            f"{number}",
            (
                Cell(one.rule),
                Cell(one.severity, Tone.WARN if one.severity is Severity.WARNING else Tone.PLAIN),
                Cell(f"{one.path}: {one.message}"),
                Cell(one.remedy),
            ),
        )
        for number, one in enumerate(findings)
    ]
