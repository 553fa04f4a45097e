"""Tests of the page of figures. It must contain every measured row and every missed target."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.bench import report


def row(metric: str, **more: Any) -> dict[str, Any]:
    plain = {"value": 1.5, "unit": "seconds", "baseline": None, "ratio": None, "target": None, "met": None}
    return {"metric": metric, **plain, "kind": "measured", "spread": "1 to 2, n=5", **more}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    head = {"name": "b", "command": "make b", "commit": "abc", "date": "2026-01-02", "machine": "2 cores"}
    return {**head, "rows": list(rows)}


def lines(*rows: dict[str, Any]) -> list[str]:
    return report.page([document(*rows)]).splitlines()


@pytest.mark.parametrize(
    ("of", "line"),
    [
        ({}, "| m | 1.5 | seconds |  |  |  |  | 1 to 2, n=5 |"),
        (
            {"baseline": 3, "ratio": 2.0, "target": 1.0, "met": False},
            "| m | 1.5 | seconds | 3 | 2 | 1 | **no** | 1 to 2, n=5 |",
        ),
        ({"value": None}, "| m | never | seconds |  |  |  |  | 1 to 2, n=5 |"),
        ({"value": 0.0000161}, "| m | 0.0000161 | seconds |  |  |  |  | 1 to 2, n=5 |"),
        ({"value": 8532447}, "| m | 8,532,447 | seconds |  |  |  |  | 1 to 2, n=5 |"),
        ({"kind": "simulated"}, "| m | 1.5 | seconds |  |  |  |  | 1 to 2, n=5 (simulated) |"),
        ({"kind": "not measured: no GPU", "value": None}, "| m | | | | | | | not measured: no GPU |"),
    ],
)
def test_a_row_is_formatted(of: dict[str, Any], line: str) -> None:
    assert line in lines(row("m", **of))


def test_rows_are_grouped_by_subject_and_single_rows_come_first() -> None:
    found = lines(row("a: x"), row("b: x"), row("a: y"), row("c"))
    wanted = [one for one in found if one.startswith(("### ", "| a", "| b:", "| x", "| y", "| c "))]
    assert [one.split("|")[1 if "|" in one else 0].strip() for one in wanted] == [
        "b: x",
        "c",
        "### a",
        "x",
        "y",
    ]


def test_the_summary_counts_targets_met_and_missed() -> None:
    rows = row("m", target=1, met=True), row("n", target=1, met=False), row("o")
    assert "| [b](#b) | `make b` | 1 | 1 |" in lines(*rows)


def test_the_parts_of_a_file_show_their_own_runs() -> None:
    runs = {"commit": "abc", "machine": "2 cores"}
    parts = {"p": {**runs, "date": "2026-01-02"}, "q": {**runs, "date": "2026-01-03"}}
    found = report.page([{**document(row("m", part="p")), "parts": {**parts, "r": parts["p"]}}])
    assert "- p, r: on 2026-01-02 at commit abc: 2 cores.\n- q: on 2026-01-03" in found


def test_the_page_contains_every_committed_row() -> None:
    found = report.documents(report.FOLDER)
    page = report.page(found)
    tables = [line for line in page.splitlines() if line.startswith("| ")]
    heads = sum(line.startswith("|  |") for line in tables)
    assert len(tables) - heads - 1 - len(found) == sum(len(one["rows"]) for one in found)
