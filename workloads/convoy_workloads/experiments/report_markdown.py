"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convoy_workloads.experiments.result import Result
from convoy_workloads.experiments.tables import Table, summary, tables


def markdown(plan: Mapping[str, Any], result: Result) -> str:
    """Return the report of a result."""
    lines = [f"# Experiment {result.experiment}", "", *summary(plan, result), ""]
    for table in tables(plan, result):
        lines += [f"## {table.title}", "", *_table(table), ""]
    return "\n".join(lines)


def _table(table: Table) -> Iterator[str]:
    if table.note:
        yield table.note
        yield ""
    if not table.rows:
        yield table.empty
        return
    yield _row(table.columns)
    yield "|---" * len(table.columns) + "|"
    for row in table.rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in cells)} |"
