"""Tests of the choice of table rows in a page's query."""

from __future__ import annotations

import pytest

from convoy_operator.dashboard.core import table_query
from convoy_operator.dashboard.core.rows import Choice


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ({}, Choice()),
        ({"jobs.words": "llama 8b", "jobs.is": "Running"}, Choice(words="llama 8b", group="Running")),
        ({"jobs.sort": "1"}, Choice(column=0)),
        ({"jobs.sort": "-10", "jobs.page": "3"}, Choice(column=9, descending=True, page=2)),
    ],
)
def test_a_choice_survives_formatting_and_parsing(query: dict[str, str], chosen: Choice) -> None:
    assert table_query.parse_choice({**query, "nodes.words": "other"}, "jobs", 10) == chosen
    assert table_query.format_choice("jobs", chosen) == query


@pytest.mark.parametrize(
    "query",
    [
        {"jobs.sort": "11"},
        {"jobs.sort": "0"},
        {"jobs.sort": "-"},
        {"jobs.sort": "--1"},
        {"jobs.sort": "\u0663"},
        {"jobs.page": "0"},
        {"jobs.page": "-2"},
        {"jobs.page": "9" * 30},
        {"jobs.page": "two"},
    ],
)
def test_invalid_parts_of_a_query_are_ignored(query: dict[str, str]) -> None:
    assert table_query.parse_choice(query, "jobs", 10) == Choice()


def test_search_words_are_bounded() -> None:
    assert len(table_query.parse_choice({"jobs.words": "x" * 9999}, "jobs", 10).words) == table_query.MAX_TEXT
