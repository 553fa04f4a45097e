"""Tests of the selection of table rows, and of text formats."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.operator.dashboard.builders import NOW

from convoy_crds.meta import Condition
from convoy_operator.dashboard.core import formatting
from convoy_operator.dashboard.core.rows import Cell, Choice, Row, arrange, natural


def row(name: str, number: float | None, group: str = "") -> Row:
    shown = Cell("-") if number is None else Cell(f"{number:g}", order=number)
    return Row(name, (Cell(name), shown), group)


FIRST = ["node-10", "node-2", "node-1"]
ROWS = [row("node-10", 3, "a"), row("node-2", 1, "b"), row("node-1", None, "a"), row("Other", 20, "b")]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (Choice(), ["node-10", "node-2", "node-1", "Other"]),
        (Choice(column=0), ["node-1", "node-2", "node-10", "Other"]),
        (Choice(column=0, descending=True), ["Other", "node-10", "node-2", "node-1"]),
        (Choice(column=1), ["node-2", "node-10", "Other", "node-1"]),
        (Choice(column=1, descending=True), ["Other", "node-10", "node-2", "node-1"]),
        (Choice(words="NODE 1"), ["node-10", "node-2", "node-1"]),
        (Choice(words="node 10"), ["node-10"]),
        (Choice(words="  "), ["node-10", "node-2", "node-1", "Other"]),
        (Choice(group="b"), ["node-2", "Other"]),
        (Choice(group="b", words="other"), ["Other"]),
        (Choice(group="c"), []),
    ],
)
def test_rows_are_chosen_and_sorted(choice: Choice, names: list[str]) -> None:
    found = arrange(ROWS, choice, 10)
    assert [one.key for one in found.rows] == names
    assert (found.matching, found.total, found.pages, found.page) == (len(names), 4, 1, 0)


@pytest.mark.parametrize(
    ("page", "shown", "at"), [(0, FIRST, 0), (1, ["Other"], 1), (7, ["Other"], 1), (-1, FIRST, 0)]
)  # fmt: skip
def test_a_missing_page_number_becomes_the_nearest_one(page: int, shown: list[str], at: int) -> None:
    found = arrange(ROWS, Choice(page=page), 3)
    assert ([one.key for one in found.rows], found.page, found.pages) == (shown, at, 2)


def test_numbers_in_names_are_numbers() -> None:
    assert sorted(["n10", "N9", "n1"], key=natural) == ["n1", "N9", "n10"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.25, "0.2 s"), (42.4, "42 s"), (60, "1 min"), (425, "7 min 5 s"), (3600, "1 h"),
        (12_000, "3 h 20 min"), (187_200, "2 d 4 h"), (86_400, "1 d"), (-5, "0 s"),
    ],
)  # fmt: skip
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (2.14912, "2.149"), (0.0001, "1.000e-04"), (1843.2, "1,843"),
     (3e9, "3.000e+09"),
     (-12.5, "-12.5")],
)  # fmt: skip
def test_figures_are_formatted(value: float | None, text: str) -> None:
    assert formatting.figure(value) == text


def test_timestamps_are_formatted() -> None:
    assert formatting.until(NOW + timedelta(hours=7), NOW) == "in 7h"
    assert formatting.until(NOW - timedelta(hours=7), NOW) == "7h ago"
    assert (formatting.until(None, NOW), formatting.ago(None, NOW), formatting.clock(None)) == ("-", "-", "-")
    assert formatting.clock(NOW) == "2026-05-01 12:00:00Z"


def test_names_in_links_are_escaped() -> None:
    assert formatting.job_link("a/b", "c?d#<e>") == "/jobs/a%2Fb/c%3Fd%23%3Ce%3E"
    assert formatting.node_link("../x") == "/nodes/..%2Fx"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("plain, and \u00fcml\u00e4ut \u65e5\u672c", "plain, and \u00fcml\u00e4ut \u65e5\u672c"),
        ("two\n\tlines", "two\n\tlines"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("exe.\u202egnp", "exe.\ufffdgnp"),
        ("gp\u200bt, \ufeffgpt, g\u00adpt", "gp\ufffdt, \ufffdgpt, g\ufffdpt"),
        ("a\u2066b\u2069\x00\x85", "a\ufffdb\ufffd\ufffd\ufffd"),
    ],
)
def test_invisible_characters_are_replaced(given: str, seen: str) -> None:
    assert formatting.visible(given) == seen


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([5], "5"), ([0, 1, 2, 3], "0-3"), ([7, 0, 1, 3, 4, 4], "0-1, 3-4, 7")],
)
def test_ranks_are_shown_as_ranges(numbers: list[int], text: str) -> None:
    assert formatting.ranges(numbers) == text


def test_a_cut_message_is_completed_from_its_condition() -> None:
    whole = "image 'i' cannot be pulled: no such host; check the image's name"
    moment = NOW.isoformat()
    known = [
        Condition(type="Running", status="False", reason=reason, message=whole, last_transition_time=moment)
        for reason in ("Other", "ImagePullFailed")
    ]
    cut = f"{whole[:30]} ..."
    assert formatting.reason_text("ImagePullFailed", cut, known) == f"ImagePullFailed: {whole}"
    assert formatting.reason_text("ImagePullFailed", cut, known[:1]) == f"ImagePullFailed: {cut}"
    assert formatting.reason_text("Training", "2 ranks run", known) == "Training: 2 ranks run"
    assert formatting.reason_text("Training", "", []) == "Training"


def test_a_long_text_is_shortened() -> None:
    assert formatting.shortened("abcdef", 6) == "abcdef"
    assert formatting.shortened("abcdefghijklm", 12) == "abcde … jklm"


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("system:serviceaccount:convoy-system:reader", "convoy-system/reader"),
        ("system:serviceaccount:odd", "system:serviceaccount:odd"),
        ("jane@example.com", "jane@example.com"),
        ("oidc:team:jane", "oidc:team:jane"),
    ],
)
def test_a_service_account_is_shown_as_namespace_and_name(user: str, shown: str) -> None:
    assert formatting.account(user) == shown
