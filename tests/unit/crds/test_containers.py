"""Tests that the ranks' container of a pod is found."""

from __future__ import annotations

import pytest

from convoy_crds.containers import rank_container
from convoy_crds.terms import ANNOTATION_CONTAINER


@pytest.mark.parametrize(
    ("named", "names", "name"),
    [
        ("trainer", ["mesh", "worker", "trainer"], "trainer"),
        ("gone", ["mesh", "worker"], "worker"),
        (None, ["mesh", "worker"], "worker"),
        (None, ["main", "log"], "main"),
        (None, [], "worker"),
    ],
)
def test_the_annotation_selects_the_rank_container(named: str | None, names: list[str], name: str) -> None:
    assert rank_container({ANNOTATION_CONTAINER: named} if named else None, names) == name
