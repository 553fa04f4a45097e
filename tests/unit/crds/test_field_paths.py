"""Tests of field paths."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.field_paths import InvalidFieldPath, value_at, with_value

BODY: dict[str, Any] = {"roles": [{"replicas": 2}, {"replicas": 1}], "engine": {"params": {"rate": 1}}}


@pytest.mark.parametrize(
    "path", ["engine.params.rate", "engine.params.other.deep", "roles.1.replicas", "roles.0"]
)
def test_a_set_value_is_read_again_and_the_original_stays(path: str) -> None:
    before = repr(BODY)
    changed = with_value(BODY, path, 7)
    assert value_at(changed, path) == 7
    assert repr(BODY) == before
    assert changed.keys() == BODY.keys()


@pytest.mark.parametrize(
    ("path", "words"),
    [("roles.2.replicas", "'2' is no item"), ("roles.x", "'x' is no item"), ("engine.params.rate.x", "'x'")],
)
def test_a_path_that_the_value_cannot_have_is_an_error(path: str, words: str) -> None:
    with pytest.raises(InvalidFieldPath, match=words):
        with_value(BODY, path, 7)
    assert value_at(BODY, path) is None
