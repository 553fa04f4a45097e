"""Tests of the texts in which records, manifests and branches are stored and sent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation, parse_name
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, MalformedError, Manifest, Record

GENERATIONS = st.builds(Generation, st.integers(0, 10**9), st.integers(0, 10**12))
IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
CHUNKS = st.builds(Chunk, st.text("0123456789abcdef", min_size=32, max_size=32), st.integers(1, 4 << 20))
MANIFESTS = st.builds(
    Manifest,
    GENERATIONS,
    st.text(max_size=20),
    st.lists(CHUNKS, min_size=1, max_size=5).map(tuple),
    st.integers(0, 1 << 40),
    st.none() | IDS,
)
RECORDS = st.builds(
    Record,
    GENERATIONS,
    st.none() | GENERATIONS,
    st.dictionaries(st.text(max_size=8), IDS, max_size=4),
    st.integers(1, 9),
    st.text(max_size=8),
    st.floats(0, 2e9),
)


@given(MANIFESTS)
def test_manifest_text_round_trips(one: Manifest) -> None:
    assert records.parse_manifest(one.text) == one
    assert records.parse_manifest(one.text).id == one.id


@given(RECORDS)
def test_record_text_round_trips(one: Record) -> None:
    assert records.parse_record(one.text) == one


@given(st.builds(Branch, st.integers(0, 99), st.none() | GENERATIONS, st.booleans()))
def test_branch_text_round_trips(one: Branch) -> None:
    assert records.parse_branch(one.text) == one


MANIFEST = Manifest(Generation(1, 2), "0", (Chunk("ab" * 16, 5),), 5)
RECORD = Record(Generation(1, 2), None, {"0": "cd" * 32})


def written(data: Mapping[str, Any]) -> bytes:
    """Return the data as JSON text in the canonical form of records."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("read", "text", "change"),
    [
        (records.parse_manifest, MANIFEST.text, {"generation": None}),
        (records.parse_manifest, MANIFEST.text, {"generation": [1]}),
        (records.parse_manifest, MANIFEST.text, {"generation": [1, -2]}),
        (records.parse_manifest, MANIFEST.text, {"generation": [1, True]}),
        (records.parse_manifest, MANIFEST.text, {"chunks": [["xy" * 16, 5]]}),
        (records.parse_manifest, MANIFEST.text, {"chunks": [["ab", 5]]}),
        (records.parse_manifest, MANIFEST.text, {"chunks": [["ab" * 16, 1 << 30]]}),
        (records.parse_manifest, MANIFEST.text, {"chunks": [["ab" * 16, 0]]}),
        (records.parse_manifest, MANIFEST.text, {"chunks": []}),
        (records.parse_manifest, MANIFEST.text, {"length": "5"}),
        (records.parse_record, RECORD.text, {"shards": ["a"]}),
        (records.parse_record, RECORD.text, {"world": -1}),
        (records.parse_record, RECORD.text, {"saved": "now"}),
        (records.parse_branch, Branch(3).text, {"incarnation": 1.5}),
    ],
)
def test_malformed_text_is_rejected(
    read: Callable[[bytes], object], text: bytes, change: dict[str, Any]
) -> None:
    with pytest.raises(MalformedError):
        read(written({**json.loads(text), **change}))
    for key in json.loads(text):
        with pytest.raises(MalformedError):
            read(written({k: v for k, v in json.loads(text).items() if k != key}))


@given(st.binary(max_size=40) | MANIFESTS.map(lambda one: one.text[:-1]))
def test_random_bytes_do_not_crash_the_parser(text: bytes) -> None:
    for read in (records.parse_manifest, records.parse_record, records.parse_branch):
        with pytest.raises(MalformedError):
            read(text)


@given(MANIFESTS, st.data())
def test_a_flipped_bit_changes_the_id_or_is_refused(one: Manifest, data: st.DataObject) -> None:
    text = bytearray(one.text)
    at = data.draw(st.integers(0, 8 * len(text) - 1))
    text[at // 8] ^= 1 << at % 8
    with contextlib.suppress(MalformedError):
        assert records.parse_manifest(bytes(text)).id != one.id


@pytest.mark.parametrize(
    ("part", "instead"),
    [(b"\\udc00", b"\\udC00"), (b'":', b'": '), (b'{"chunks"', b'{"also":1,"chunks"')],
    ids=["an escape in other letters", "a space", "one more key"],
)
def test_manifest_in_noncanonical_form_is_rejected(part: bytes, instead: bytes) -> None:
    """A manifest in another JSON form is rejected, because its id is the digest of the canonical text."""
    one = replace(MANIFEST, shard="rank \U00010000")
    assert part in one.text
    with pytest.raises(MalformedError, match="not in canonical form"):
        records.parse_manifest(one.text.replace(part, instead, 1))


@pytest.mark.parametrize(
    "name", ["gen-1", "gen-1-2-3", "gen-a-2", "agen-1-2", "gen-1-2\n", "gen-" + "9" * 19 + "-1"]
)
def test_other_names_are_not_generations(name: str) -> None:
    assert parse_name(name) is None


def test_generation_name_round_trips() -> None:
    assert parse_name(Generation(3, 40).name) == Generation(3, 40)


def test_decided_branch_replaces_an_undecided_branch() -> None:
    looking, decided = Branch(2, decided=False), Branch(2, Generation(1, 5))
    for both in ([looking, decided], [decided, looking]):
        found = records.merge([Inventory(branches={2: one}) for one in both])
        assert found.branches == {2: decided}
