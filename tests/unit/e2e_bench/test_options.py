"""Tests of command-line options of benches."""

from __future__ import annotations

import pytest
import typer
from e2e.bench.kit.options import chosen


@pytest.mark.parametrize(
    ("only", "found"),
    [(None, ["a", "b", "c"]), ([], ["a", "b", "c"]), (["c", "a"], ["a", "c"]), (["b", "b"], ["b"])],
)
def test_chosen_parts_keep_their_order(only: list[str] | None, found: list[str]) -> None:
    assert chosen(only, ("a", "b", "c")) == found


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    with pytest.raises(typer.BadParameter, match=r"unknown: d; choose from a, b"):
        chosen(["a", "d"], ("a", "b"))
