from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.folder.records import (
    KEEP,
    CommitRecord,
    parse_name,
    record_from_json,
    superseded,
)
from convoy_workloads.runtime.generation import Generation

A, B, C, D = [Generation(*pair) for pair in ((1, 10), (1, 20), (2, 15), (2, 25))]
TORN, FLYING = Generation(1, 22), Generation(2, 30)


@pytest.mark.parametrize(
    ("committed", "newest", "unreadable", "deleted"),
    [
        ([A], A, [], [TORN]),
        ([A, B], B, [], []),
        ([A, B, C], C, [], [A, TORN]),
        ([A, B, C], C, [B], [TORN]),
        ([A, B, C, D], D, [B], [A, TORN]),
        ([A, B, C, D], D, [B, TORN], [A]),
        ([A, B, D], C, [], []),
    ],
    ids=[
        "one", "two", "three", "what could not be read is none to fall back on",
        "and makes room for none that can", "nor does a record that could not", "one that is not there",
    ],
)  # fmt: skip
def test_a_commit_supersedes_older_generations(
    committed: list[Generation], newest: Generation, unreadable: list[Generation], deleted: list[Generation]
) -> None:
    present = [*committed, FLYING, *([TORN] if newest > TORN else [])]
    wanted = [one for one in deleted if one in present]
    assert superseded(present, committed, newest, unreadable) == wanted


generations = st.builds(Generation, st.integers(1, 4), st.integers(1, 9))
sets = st.sets(generations)


@given(sets, sets, generations, sets)
def test_deletion_keeps_generations_that_a_restore_needs(
    torn: set[Generation], committed: set[Generation], newest: Generation, unreadable: set[Generation]
) -> None:
    committed.add(newest)
    unreadable.discard(newest)
    present = torn | committed
    left = present - set(superseded(present, committed, newest, unreadable))
    assert unreadable & present <= left
    assert {one for one in present if one >= newest} <= left
    readable = sorted(committed - unreadable)
    assert set(readable[-KEEP:]) <= left
    if newest in readable[-KEEP:]:
        assert {one for one in left if one < newest} - unreadable <= set(readable[-KEEP:])


def test_a_record_round_trips_through_json() -> None:
    one = CommitRecord(Generation(3, 40), 4, "2.13.0", "ab", {"__0_0.distcp": (12, "cd")})
    assert record_from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize("text", ["{}", '{"incarnation": 1, "step": 2, "worldSize": 1}', "[]"])
def test_an_invalid_record_is_rejected(text: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        record_from_json(json.loads(text))


@pytest.mark.parametrize(
    ("name", "generation"),
    [("gen-1-20", Generation(1, 20)), ("gen-1-20.tmp", None), ("gen-a-1", None), ("other", None)],
)
def test_folders_are_recognised_by_name(name: str, generation: Generation | None) -> None:
    assert parse_name(name) == generation
