"""Tests of the operator's parser for results, which come from pods and are untrusted."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_crds.job_result import ResultRefused, parse_result


def test_null_fields_are_left_out() -> None:
    text = '{"a": null, "b": {"c": null, "d": 1}, "e": [null, {"f": null}]}'
    assert parse_result(text) == {"b": {"d": 1}, "e": [None, {}]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 3000, "nested"),
        ('{"a": ' * 400 + "1" + "}" * 400, "more than 8 nested"),
        ("[1]", "not a JSON object"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "a number is too large"),
        ('{"a": [9223372036854775808]}', "more than 64 bits"),
        ('{"a": "\\ud800"}', "not valid Unicode"),
        ('{"\\udfff": 1}', "not valid Unicode"),
        ('{"a": "' + "é" * 1750 + '"}', "more than 3500 bytes"),
    ],
)
def test_a_malformed_result_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ResultRefused, match=problem):
        parse_result(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100)
@given(st.text(max_size=40) | VALUES.map(json.dumps))
def test_any_text_gives_an_object_that_the_api_server_can_store_or_is_refused(text: str) -> None:
    try:
        found = parse_result(text)
    except ResultRefused:
        return
    assert orjson.loads(orjson.dumps(found)) == found
