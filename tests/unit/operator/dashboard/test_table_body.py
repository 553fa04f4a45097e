"""Tests of the body of a table, without a browser."""

from __future__ import annotations

from nicegui import Client
from nicegui.page import page

from convoy_operator.dashboard.core.rows import Cell, Column, Row
from convoy_operator.dashboard.pages.components.table_body import TableBody


def rows(*pairs: str) -> list[Row]:
    """Return one row for each text `key=text`."""
    return [Row(one.partition("=")[0], (Cell(one.partition("=")[2]),)) for one in pairs]


def test_a_row_keeps_its_element_when_it_moves() -> None:
    with Client(page(""), request=None):
        body = TableBody((Column("What"),))

    def shown() -> dict[str, int]:
        return {one.props["data-key"]: one.id for one in body.default_slot.children}

    body.show(rows("a=1", "b=2", "c=3"))
    before = shown()
    body.show(rows("new=0", "c=4", "a=1"))
    after = shown()
    assert list(after) == ["new", "c", "a"]
    assert (after["a"], after["c"]) == (before["a"], before["c"])
    assert after["new"] not in before.values()
    assert [one.props["cells"] for one in body.default_slot.children] == [[["0"]], [["4"]], [["1"]]]
    body.show([])
    assert shown() == {}


def test_rows_with_equal_keys_are_separate() -> None:
    with Client(page(""), request=None):
        body = TableBody((Column("What"),))
    body.show(rows("a=1", "a=2", "b=3"))
    assert [one.props["cells"] for one in body.default_slot.children] == [[["1"]], [["2"]], [["3"]]]
