from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.lineage import (
    KEEP,
    Generation,
    Record,
    doomed,
    lineage,
    parse_name,
    record_from_json,
)

Pair = tuple[int, int]


def record(at: Pair, parent: Pair | None = None) -> Record:
    return Record(Generation(*at), Generation(*parent) if parent else None, world=2)


def line(*records: Record) -> list[Pair]:
    return [(one.generation.incarnation, one.generation.step) for one in lineage(records)]


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


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Record], list[Generation]]:
    """Records as incarnations write them: each restores from the lineage at its time, zombies commit late.

    Returns the records and, for the last incarnation that committed, what it has behind it (newest first).
    """
    records: list[Record] = []
    zombies: list[Record] = []
    behind: list[Generation] = []
    for incarnation in range(1, draw(st.integers(1, 5)) + 1):
        parent = behind[0] if behind else None
        step = parent.step if parent else 0
        for _ in range(draw(st.integers(0, 3))):
            step += draw(st.integers(1, 5))
            one = Record(Generation(incarnation, step), parent, world=2)
            records.append(one)
            behind.insert(0, one.generation)
            parent = one.generation
        if behind and draw(st.booleans()):
            late = Record(Generation(incarnation, step + 1), parent, world=2)
            zombies.append(late)
    committed = {one.generation.incarnation for one in records}
    last = max(committed, default=0)
    return records + [one for one in zombies if one.generation.incarnation < last], behind


@given(histories(), st.randoms())
def test_a_restore_never_takes_a_dead_branch(
    history: tuple[list[Record], list[Generation]], random: object
) -> None:
    records, behind = history
    random.shuffle(records)  # type: ignore[attr-defined]
    assert [one.generation for one in lineage(records)] == behind


@given(histories())
def test_deleting_keeps_what_a_restore_would_take(history: tuple[list[Record], list[Generation]]) -> None:
    records, behind = history
    if not behind:
        return
    gone = set(doomed([one.generation for one in records], records, behind[0]))
    assert gone.isdisjoint(behind[:KEEP])
    left = [one for one in records if one.generation not in gone]
    assert [one.generation for one in lineage(left)][:KEEP] == behind[:KEEP]
    assert len(left) <= KEEP


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
