from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.lineage import (
    KEEP,
    Branch,
    Generation,
    Record,
    branch_from_json,
    doomed,
    lineage,
    parse_name,
    record_from_json,
)

Pair = tuple[int, int]


def record(at: Pair, parent: Pair | None = None) -> Record:
    return Record(Generation(*at), Generation(*parent) if parent else None, world=2)


def branch(incarnation: int, parent: Pair | None = None) -> Branch:
    return Branch(incarnation, Generation(*parent) if parent else None)


def line(*known: Record | Branch) -> list[Pair]:
    found = lineage(
        [one for one in known if isinstance(one, Record)], [one for one in known if isinstance(one, Branch)]
    )
    return [(one.generation.incarnation, one.generation.step) for one in found]


def test_without_records_there_is_nothing_to_restore() -> None:
    assert line() == []


def test_the_newest_comes_first_and_its_parents_follow() -> None:
    assert line(record((1, 10)), record((1, 20), (1, 10)), record((2, 25), (1, 20))) == [
        (2, 25),
        (1, 20),
        (1, 10),
    ]


def test_a_late_commit_of_a_replaced_incarnation_is_a_dead_branch() -> None:
    found = line(record((1, 10)), record((1, 30), (1, 10)), record((2, 12), (1, 10)))
    assert found == [(2, 12), (1, 10)]


LATE = (record((1, 10)), record((1, 20), (1, 10)), record((1, 30), (1, 20)))
"""Of which the last was committed when incarnation 2 had gone on from the one before."""


@pytest.mark.parametrize(
    ("more", "restored"),
    [
        ((), [(1, 30), (1, 20), (1, 10)]),
        ((branch(1),), [(1, 30), (1, 20), (1, 10)]),
        ((branch(1), branch(2, (1, 20))), [(1, 20), (1, 10)]),
        ((branch(2, (1, 20)), record((2, 25), (1, 20))), [(2, 25), (1, 20), (1, 10)]),
        ((branch(2, (1, 20)), record((2, 25), (1, 20)), branch(3, (1, 20))), [(1, 20), (1, 10)]),
        ((branch(2, (1, 20)), branch(3, (1, 10))), [(1, 10)]),
        ((branch(2),), []),
        ((branch(2, (1, 25)),), [(1, 20), (1, 10)]),
        ((branch(2, (1, 5)),), []),
    ],
    ids=[
        "no later incarnation", "its own branch", "one that never committed", "one that did",
        "one that passed over what it could not read", "the last counts", "one that began afresh",
        "what it began from was deleted", "and nothing older is left",
    ],
)  # fmt: skip
def test_a_restore_follows_the_highest_incarnation_even_if_it_never_committed(
    more: tuple[Record | Branch, ...], restored: list[Pair]
) -> None:
    assert line(*LATE, *more) == restored


def test_it_counts_incarnations_before_steps() -> None:
    assert line(record((1, 900)), record((2, 5)))[0] == (2, 5)


def test_the_line_ends_where_a_parent_is_missing_or_not_older() -> None:
    assert line(record((2, 20), (2, 10))) == [(2, 20)]
    assert line(record((2, 20), (2, 20))) == [(2, 20)]
    assert line(record((2, 20), (3, 1)), record((1, 5), (2, 20))) == [(2, 20)]


def test_what_may_go_once_a_generation_is_committed() -> None:
    records = [record((1, 10)), record((1, 20), (1, 10)), record((1, 99), (1, 20)), record((2, 25), (1, 20))]
    present = [one.generation for one in records] + [Generation(1, 55), Generation(2, 30), Generation(3, 1)]
    gone = doomed(present, records, Generation(2, 25))
    assert gone == [Generation(1, 10), Generation(1, 55), Generation(1, 99)]


def test_a_replaced_incarnation_deletes_nothing() -> None:
    records = [record((1, 10)), record((2, 15), (1, 10)), record((1, 40), (1, 10))]
    assert doomed([one.generation for one in records], records, Generation(1, 40)) == []
    # Nor while its successor has only begun.
    records = [record((1, 10)), record((1, 20), (1, 10)), record((1, 40), (1, 20))]
    present = [one.generation for one in records]
    assert doomed(present, records, Generation(1, 40), branches=[branch(2, (1, 20))]) == []
    assert doomed(present, records, Generation(1, 40)) == [Generation(1, 10)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Record], list[Branch], list[Generation]]:
    """What incarnations write: each restores from the lineage at its time, zombies commit late.

    Returns records, branches and what the last incarnation has behind it (newest first). Some incarnations
    end before they commit anything; their predecessors' late commits then lie next to them.
    """
    records: list[Record] = []
    branches: list[Branch] = []
    zombies: list[Record] = []
    behind: list[Generation] = []
    last = draw(st.integers(1, 5))
    for incarnation in range(1, last + 1):
        parent = behind[0] if behind else None
        branches.append(Branch(incarnation, parent))
        step = parent.step if parent else 0
        for _ in range(draw(st.integers(0, 3))):
            step += draw(st.integers(1, 5))
            one = Record(Generation(incarnation, step), parent, world=2)
            records.append(one)
            behind.insert(0, one.generation)
            parent = one.generation
        if incarnation < last and draw(st.booleans()):
            zombies.append(Record(Generation(incarnation, step + 1), parent, world=2))
    return records + zombies, branches, behind


History = tuple[list[Record], list[Branch], list[Generation]]


@given(histories(), st.randoms())
def test_a_restore_never_takes_a_dead_branch(history: History, random: object) -> None:
    records, branches, behind = history
    for entries in (records, branches):
        random.shuffle(entries)  # type: ignore[attr-defined]
    assert [one.generation for one in lineage(records, branches)] == behind


def test_the_highest_record_alone_would_take_one() -> None:
    """The negative control of the test above: a history whose branches are needed."""
    with pytest.raises(AssertionError):

        @given(histories())
        def without_branches(history: History) -> None:
            records, _, behind = history
            assert [one.generation for one in lineage(records)] == behind

        without_branches()


@given(histories())
def test_deleting_keeps_what_a_restore_would_take(history: History) -> None:
    records, branches, behind = history
    if not behind:
        return
    gone = set(doomed([one.generation for one in records], records, behind[0], branches=branches))
    assert gone.isdisjoint(behind[:KEEP])
    left = [one for one in records if one.generation not in gone]
    assert [one.generation for one in lineage(left, branches)][:KEEP] == behind[:KEEP]
    newer = [one for one in left if one.generation > behind[0]]
    assert len(left) - len(newer) <= KEEP


@pytest.mark.parametrize("one", [branch(3, (2, 30)), branch(1)])
def test_a_branch_survives_its_file(one: Branch) -> None:
    assert branch_from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_record_survives_its_file() -> None:
    one = Record(Generation(3, 40), Generation(2, 30), 4, "2.13.0", "ab", {"__0_0.distcp": (12, "cd")})
    assert record_from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize("text", ["{}", '{"incarnation": 1, "step": 2, "parent": 3, "worldSize": 1}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        record_from_json(json.loads(text))


@pytest.mark.parametrize(
    ("name", "generation"),
    [("gen-1-20", Generation(1, 20)), ("gen-1-20.tmp", None), ("gen-a-1", None), ("other", None)],
)
def test_folders_are_recognised_by_name(name: str, generation: Generation | None) -> None:
    assert parse_name(name) == generation
