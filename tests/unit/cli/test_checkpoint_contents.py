"""Tests of the generations that one job has in a store: table rows, faults, and the choice of the
generation to restore.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.cli.saved_job import NOW, SIZE, chunk_of, noise, record_of, shard

from convoy.cli.checkpoint import ls, verify
from convoy.cli.checkpoint.contents import (
    Contents,
    choose_generation,
    describe_skipped,
    fault_lines,
    faults,
    label,
    newest_base,
    parse_label,
    refusal,
    rows,
    stored_chunks,
    to_verify,
)
from convoy.cli.checkpoint.export import format_of, journal_refusal
from convoy_agents.tiercheck.stores.blobs import Listing
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Inventory, Manifest, Record
from convoy_controllers.checkpoint.restore import Lost, Restore


def contents(
    records: Iterable[Record],
    manifests: Iterable[Manifest],
    branches: Iterable[Branch] = (),
    *,
    without: Iterable[bytes] = (),
    age: float = 0.0,
    malformed: tuple[str, ...] = (),
) -> Contents:
    """Return contents that have all chunks of the manifests, except the chunks `without`."""
    known = {one.id: one for one in manifests}
    sizes = {chunk.digest: chunk.length for one in known.values() for chunk in one.chunks}
    for data in without:
        del sizes[chunk_of(data).digest]
    return Contents(
        Inventory(
            {one.generation: one for one in records}, {one.incarnation: one for one in branches}, known
        ),
        Listing(NOW, dict.fromkeys(sizes, NOW - age), sizes),
        Listing(NOW, dict.fromkeys(known, NOW - age), dict.fromkeys(known, 100)),
        malformed,
    )


FIRST = shard((1, 10), [noise(1), noise(2)])
SECOND = shard((1, 20), [noise(1), noise(3)])
DEAD = shard((1, 30), [noise(4)])
THIRD = shard((2, 25), [noise(3), noise(5), noise(5)])
RUN = [
    record_of([FIRST]),
    record_of([SECOND], (1, 10)),
    record_of([DEAD], (1, 20)),
    record_of([THIRD], (1, 20)),
]
SHARDS = [FIRST, SECOND, DEAD, THIRD]
BRANCH = Branch(2, Generation(1, 20))
WHOLE = contents(RUN, SHARDS, [BRANCH])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3/1200", Generation(3, 1200)),
        ("gen-3-1200", None),
        ("3", None),
        ("3/", None),
        ("-1/2", None),
        ("1/2 ", None),
    ],
)
def test_a_generation_is_written_as_incarnation_and_step(text: str, found: Generation | None) -> None:
    assert parse_label(text) == found
    assert found is None or label(found) == text


def test_a_row_shows_new_bytes_and_lineage() -> None:
    shown = [
        (label(row.generation), row.bytes, row.new_bytes, row.in_lineage, row.whole, row.restored)
        for row in rows(WHOLE)
    ]
    assert shown == [
        ("2/25", 2 * SIZE, 2 * SIZE, True, True, True),
        ("1/30", SIZE, SIZE, False, True, False),
        ("1/20", 2 * SIZE, SIZE, True, True, False),
        ("1/10", 2 * SIZE, 2 * SIZE, True, True, False),
    ]


CUT = replace(WHOLE, chunks=WHOLE.chunks._replace(sizes={**WHOLE.chunks.sizes, chunk_of(noise(5)).digest: 7}))


def kept_as(size: int) -> Contents:
    """Return contents in which a chunk of the newest generation has `size` bytes in the store."""
    sizes = {**WHOLE.chunks.sizes, chunk_of(noise(5)).digest: size}
    return replace(WHOLE, chunks=WHOLE.chunks._replace(sizes=sizes))


@pytest.mark.parametrize(
    ("size", "whole"),
    [
        (SIZE, True),
        (SIZE + 1, False),
        (SIZE * 97 // 100, True),
        (SIZE * 97 // 100 + 1, False),
        (20, True),
        (19, False),
        (0, False),
    ],
)
def test_an_encoded_chunk_has_fewer_bytes(size: int, whole: bool) -> None:
    about = kept_as(size)
    newest = rows(about)[0]
    assert (newest.whole, newest.restored) == (whole, whole)
    assert (newest.bytes, newest.new_bytes) == (SIZE + size, SIZE + size)
    assert (not faults(about, RUN[3])) == whole


@pytest.mark.parametrize("about", [contents(RUN, SHARDS, [BRANCH], without=[noise(5)]), CUT])
def test_a_generation_that_lacks_bytes_is_not_restored(about: Contents) -> None:
    found = rows(about)
    assert [(label(row.generation), row.whole, row.restored) for row in found][:3] == [
        ("2/25", False, False),
        ("1/30", True, False),
        ("1/20", True, True),
    ]


@pytest.mark.parametrize(
    ("which", "without", "found", "words"),
    [
        (None, [], (2, 25), ""),
        (None, [noise(5)], (1, 20), "2/25 lacks shard 0 of 2/25"),
        ((1, 30), [], (1, 30), ""),
        ((9, 9), [], None, ""),
        ((2, 25), [noise(5)], "lost", "2/25 lacks shard 0 of 2/25"),
    ],
)
def test_the_newest_complete_or_the_given_generation_is_chosen(
    which: tuple[int, int] | None, without: list[bytes], found: Any, words: str
) -> None:
    plan = choose_generation(
        contents(RUN, SHARDS, [BRANCH], without=without), Generation(*which) if which else None
    )
    if found is None:
        assert plan is None
    elif found == "lost":
        assert isinstance(plan, Lost) and describe_skipped(plan) == words
    else:
        assert isinstance(plan, Restore)
        assert plan.record.generation == Generation(*found) and describe_skipped(plan) == words


def test_the_message_has_the_reason_if_no_generation_can_be_restored() -> None:
    assert refusal("job", None, None) == "the store has no generation of job"
    assert "no generation 9/9 of job" in refusal("job", Generation(9, 9), None)
    lost = choose_generation(contents(RUN[:1], SHARDS[:1], without=[noise(2)]))
    assert isinstance(lost, Lost)
    assert refusal("job", None, lost) == "no generation of job is whole: 1/10 lacks shard 0 of 1/10"


BASE = shard((1, 1), [noise(1)])
SEGMENT = shard((1, 2), [noise(2)], extends=BASE.id)
LATER = shard((1, 3), [noise(3)], extends=SEGMENT.id)
JOURNAL = [record_of([BASE]), record_of([SEGMENT], (1, 1)), record_of([LATER], (1, 2))]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (WHOLE, []),
        (contents(RUN, SHARDS, [BRANCH], without=[noise(5)]),
         [f"chunk {chunk_of(noise(5)).digest} is missing"]),
        (contents(RUN, SHARDS[:3], [BRANCH]), [f"manifest {THIRD.id} is missing"]),
        (CUT, [f"chunk {chunk_of(noise(5)).digest} has 7 bytes instead of {SIZE}"]),
        (replace(contents(RUN, SHARDS[:3], [BRANCH]), manifests=WHOLE.manifests),
         [f"manifest {THIRD.id} cannot be read"]),
    ],
)  # fmt: skip
def test_the_faults_of_a_generation_are_named(about: Contents, words: list[str]) -> None:
    assert [one.what for one in faults(about, RUN[3])] == words


def test_the_whole_chain_is_checked() -> None:
    about = contents(JOURNAL, [BASE, SEGMENT, LATER], without=[noise(1)])
    assert [one.what for one in faults(about, JOURNAL[2])] == [
        f"chunk {chunk_of(noise(1)).digest} is missing"
    ]
    assert [one.what for one in faults(contents(JOURNAL, [BASE, LATER]), JOURNAL[2])] == [
        f"manifest {SEGMENT.id} is missing"
    ]
    other = shard((1, 5), [noise(1)])
    wrong = shard((1, 4), [noise(2)], extends=other.id)
    bad = contents([record_of([wrong])], [other, wrong])
    assert [one.what for one in faults(bad, record_of([wrong]))] == [
        f"the chain of manifests from {wrong.id} is broken"
    ]


def test_a_fault_of_many_shards_is_named_once() -> None:
    shared = [shard((1, step), [noise(0)], name) for step in (1, 2) for name in ("0", "1", "10")]
    records = [record_of(shared[:3]), record_of(shared[3:], (1, 1))]
    about = contents(records, shared, without=[noise(0)])
    damaged, missing = fault_lines(fault for one in records for fault in faults(about, one))
    assert not damaged
    assert missing == [
        f"chunk {chunk_of(noise(0)).digest} is missing; "
        "needed by shard 0 of 1/1, shard 1 of 1/1, shard 10 of 1/1 and 3 more"
    ]


@pytest.mark.parametrize(
    ("which", "everything", "found"),
    [
        (None, False, ["2/25"]),
        ((1, 30), False, ["1/30"]),
        ((1, 31), False, []),
        (None, True, ["2/25", "1/30", "1/20", "1/10"]),
    ],
)
def test_the_records_to_verify_are_selected(
    which: tuple[int, int] | None, everything: bool, found: list[str]
) -> None:
    records = to_verify(WHOLE, Generation(*which) if which else None, everything)
    assert [label(one.generation) for one in records] == found
    digests = [chunk.digest for chunk in stored_chunks(WHOLE, records)]
    assert len(digests) == len(set(digests)), "each chunk is read once"


def test_a_generation_that_ends_in_a_journal_is_not_exported() -> None:
    about = contents(JOURNAL, [BASE, SEGMENT, LATER])
    plan = choose_generation(about)
    assert isinstance(plan, Restore) and newest_base(about) == Generation(1, 1)
    words = journal_refusal(plan, about)
    assert words.startswith("1/3 ends in a journal") and words.endswith("--generation 1/1")
    base = choose_generation(about, Generation(1, 1))
    assert isinstance(base, Restore) and not journal_refusal(base, about)
    nothing = contents(JOURNAL[1:], [BASE, SEGMENT, LATER])
    later = choose_generation(nothing)
    assert isinstance(later, Restore) and "no generation in the store" in journal_refusal(later, nothing)


def test_malformed_records_may_hide_a_generation() -> None:
    lines = ("b: team/uid/records/gen-1-1: its checksum does not match", "b: team/uid/manifests/0: bad")
    about = replace(WHOLE, malformed=lines)
    assert verify.unreadable_objects(about, everything=False) == [lines[0]]
    assert verify.unreadable_objects(about, everything=True) == list(lines)


def test_the_format_follows_the_name() -> None:
    from pathlib import Path

    assert format_of(Path("a/b.safetensors")) == "safetensors"
    assert format_of(Path("a/b")) == "dcp"


def test_the_last_sentence_names_the_generation_to_restore() -> None:
    assert ls.conclusion("job", WHOLE).endswith("a restart of job reads 2/25.")
    assert ls.conclusion("job", contents([], [])) == "the store has no generation of job."
