"""Tests of the lineage: the generations that belong to the history of the current state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.lineage import dead, lineage, newest_incarnation
from convoy_controllers.checkpoint.records import Branch, Record

Pair = tuple[int, int]


def record(at: Pair, parent: Pair | None = None) -> Record:
    return Record(Generation(*at), Generation(*parent) if parent else None, {})


def branch(incarnation: int, parent: Pair | None = None, decided: bool = True) -> Branch:
    return Branch(incarnation, Generation(*parent) if parent else None, decided)


ONE = [record((1, 10)), record((1, 20), (1, 10))]


@pytest.mark.parametrize(
    ("records", "branches", "line"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([], [branch(1)], [], id="nothing yet"),
        pytest.param(ONE, [], [(1, 20), (1, 10)], id="one incarnation"),
        pytest.param(
            [*ONE, record((2, 15), (1, 10))], [], [(2, 15), (1, 10)], id="a late commit is off the line"
        ),
        pytest.param(ONE, [branch(2, (1, 10))], [(1, 10)], id="a branch without a commit of its own"),
        pytest.param(ONE, [branch(2, decided=False)], [(1, 20), (1, 10)], id="one that still looks"),
        pytest.param(ONE, [branch(2)], [], id="a fresh start on purpose"),
        pytest.param(
            [record((1, 10)), record((1, 30), (1, 10))],
            [branch(2, (1, 20))],
            [(1, 10)],
            id="what it began from is lost",
        ),
        pytest.param(
            [record((1, 10)), record((1, 20), (1, 10))],
            [branch(2, (1, 10)), branch(3, (2, 12))],
            [(1, 10)],
            id="a lost incarnation in between leads to where it had begun",
        ),
        pytest.param(
            [record((1, 20)), record((3, 5), (2, 12))],
            [],
            [(3, 5)],
            id="nobody knows where the lost one had begun",
        ),
        pytest.param(
            [record((1, 10)), record((2, 8), (2, 8))], [], [(2, 8)], id="a record that is its own parent"
        ),
    ],
)
def test_lineage_of_the_newest_branch(
    records: list[Record], branches: list[Branch], line: list[Pair]
) -> None:
    assert [one.generation for one in lineage(records, branches)] == line
    assert dead(records, branches) == sorted(one.generation for one in records if one.generation not in line)


def test_newest_incarnation_may_have_only_a_branch() -> None:
    assert newest_incarnation(ONE, [branch(7, decided=False)]) == 7
    assert newest_incarnation([], []) == 0


PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 6))


@given(
    st.lists(st.builds(record, PAIRS, st.none() | PAIRS), max_size=8),
    st.lists(st.builds(branch, st.integers(1, 5), st.none() | PAIRS, st.booleans()), max_size=5),
)
def test_lineage_is_finite_descending_and_holds_only_existing_records(
    records: list[Record], branches: list[Branch]
) -> None:
    line = [one.generation for one in lineage(records, branches)]
    assert line == sorted(set(line), reverse=True)
    assert set(line) <= {one.generation for one in records}
