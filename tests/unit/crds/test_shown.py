"""Tests of values and errors as texts of messages."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.shown import error_line, shown


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        ("a\nb", '"a\\nb"'),
        ("é", '"é"'),
        ("\ud800", '"\\ud800"'),
        ({"a": [1, 2.5]}, '{"a": [1, 2.5]}'),
        ("x" * 99, '"' + "x" * 59 + "..."),
        (nested(100_000), "a value of type list"),
        ({(1, 2): 3}, "a value of type dict"),
        (10**5000, "a value of type int"),
    ],
    ids=["boolean", "null", "line break", "accent", "surrogate", "object", "long", "deep", "key", "huge"],
)
def test_a_value_is_shown_as_its_writer_wrote_it(value: Any, text: str) -> None:
    assert shown(value) == text
    assert shown(value).encode()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TimeoutError(), "TimeoutError"),
        (OSError(2, "No such file"), "FileNotFoundError: [Errno 2] No such file"),
        (ValueError("one\n two"), "ValueError: one two"),
    ],
    ids=str,
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert error_line(error) == line
