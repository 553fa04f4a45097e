"""Tests of the choice of the generation to restore, and of the choice of what to delete."""

from __future__ import annotations

import pytest

from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record
from convoy_controllers.checkpoint.restore import REMOTE, Lost, Restore, plan, read_order
from convoy_controllers.checkpoint.retention import Keep, advance, memory_garbage, needed, remote_garbage


def base(step: int, shard: str = "0", incarnation: int = 1) -> Manifest:
    return Manifest(
        Generation(incarnation, step), shard, (Chunk(f"{incarnation:08x}{step:023x}{shard}", 1),), 1
    )


def segment(step: int, on: Manifest) -> Manifest:
    return Manifest(
        Generation(on.generation.incarnation, step), on.shard, (Chunk(f"{step:031x}f", 1),), 1, extends=on.id
    )


def commit(*shards: Manifest, parent: Generation | None = None) -> Record:
    return Record(shards[0].generation, parent, {one.shard: one.id for one in shards})


def inventory(manifests: list[Manifest], records: list[Record] | None = None, *branches: Branch) -> Inventory:
    return Inventory(
        {one.generation: one for one in records or []},
        {one.incarnation: one for one in branches},
        {one.id: one for one in manifests},
    )


A, B = base(10, "0"), base(10, "1")
C, D = base(20, "0"), base(20, "1")
TEN = commit(A, B)
TWENTY = commit(C, D, parent=TEN.generation)


def chosen(found: Restore | Lost | None) -> tuple[int, int] | None:
    return tuple(found.record.generation) if isinstance(found, Restore) else None  # type: ignore[return-value]


def test_restore_chooses_the_newest_complete_generation() -> None:
    held = {"x": inventory([A, C], [TEN, TWENTY]), "y": inventory([B, D], [TEN, TWENTY])}
    found = plan(held)
    assert isinstance(found, Restore) and found.record == TWENTY and not found.skipped
    assert found.shards["0"][0].places == ("x",) and found.shards["1"][0].places == ("y",)


def test_generation_with_a_lost_shard_is_skipped_and_reported() -> None:
    held = {"x": inventory([A, C, B], [TEN, TWENTY])}
    found = plan(held)
    assert isinstance(found, Restore) and found.record == TEN
    assert [(one.generation, one.shard, one.missing) for one in found.skipped] == [
        (TWENTY.generation, "1", TWENTY.generation)
    ]


def test_damaged_copy_does_not_count() -> None:
    held = {"x": inventory([A, B, C, D], [TEN, TWENTY]), "y": inventory([D])}
    assert chosen(plan(held, [("x", D.id)])) == (1, 20)
    assert chosen(plan(held, [("x", D.id), ("y", D.id)])) == (1, 10)
    everything = [(place, key) for place in held for key in held[place].manifests]
    assert isinstance(plan(held, everything), Lost)


def test_no_plan_without_a_committed_generation() -> None:
    assert plan({}) is None
    assert plan({"x": inventory([A, B])}) is None


def test_journal_needs_every_segment_and_its_base() -> None:
    first, second = segment(11, A), segment(12, segment(11, A))
    records = [commit(A), commit(first, parent=Generation(1, 10)), commit(second, parent=Generation(1, 11))]
    whole = plan({"x": inventory([A, first, second], records)})
    assert isinstance(whole, Restore) and [link.manifest for link in whole.shards["0"]] == [A, first, second]
    assert chosen(plan({"x": inventory([A, second], records)})) == (1, 10)
    assert isinstance(plan({"x": inventory([first, second], records)}), Lost)
    found = plan({"x": inventory([A, second], records), REMOTE: inventory([first])})
    assert isinstance(found, Restore) and found.shards["0"][1].places == (REMOTE,)


def test_a_chain_that_does_not_grow_is_refused() -> None:
    liar = Manifest(Generation(1, 5), "0", (), 0, extends=A.id)
    assert restore.chain({A.id: A, liar.id: liar}, liar.id) is None
    other = Manifest(Generation(1, 15), "1", (), 0, extends=A.id)
    assert restore.chain({A.id: A, other.id: other}, other.id) is None


def test_late_commit_of_a_replaced_incarnation_is_not_restored() -> None:
    held = {"x": inventory([A, B, C, D], [TEN, TWENTY], Branch(2, TEN.generation))}
    assert chosen(plan(held)) == (1, 10)


@pytest.mark.parametrize(
    ("node", "salt", "order"),
    [
        ("b", 0, ["b", "a", "c", ""]),
        ("x", 0, ["a", "b", "c", ""]),
        ("x", 1, ["b", "c", "a", ""]),
        ("x", 5, ["c", "a", "b", ""]),
    ],
)
def test_near_places_come_first_and_other_places_rotate(node: str, salt: int, order: list[str]) -> None:
    assert read_order(("", "a", "b", "c"), node, salt) == order


# Tests of deletion


def marks(local: int, peer: int) -> dict[Tier, Generation]:
    return {Tier.LOCAL: Generation(1, local), Tier.PEER: Generation(1, peer)}


def test_memory_keeps_generations_at_watermarks_and_in_progress() -> None:
    flying = base(30)
    held = inventory([A, C, flying], [TEN, TWENTY])
    assert needed(held, marks(20, 10), 1) == {A.id, B.id, C.id, D.id, flying.id}
    assert memory_garbage(held, marks(20, 20), 1).manifests == {A.id}
    assert memory_garbage(held, marks(20, 20), 1).records == (TEN.generation,)
    assert not memory_garbage(held, marks(20, 10), 1).manifests


def test_copy_above_the_peer_watermark_stays_until_abandoned() -> None:
    between = base(20, "1")
    held = inventory([A, between, base(30)], [TEN, commit(base(30))])
    assert not memory_garbage(held, marks(30, 10), 1).manifests
    assert memory_garbage(held, marks(30, 10), 1, [between.id]).manifests == {between.id}


def test_restored_generation_stays_until_the_peer_watermark_passes_it() -> None:
    own = Manifest(Generation(2, 30), "0", (), 0)
    started = Branch(2, TWENTY.generation)
    held = inventory([A, C, own], [TEN, TWENTY, commit(own)], started)
    passed = {Tier.LOCAL: own.generation, Tier.PEER: TEN.generation}
    # The restored generation is still being copied. A node must keep it, because the node may not know
    # whether all copies are complete.
    assert not memory_garbage(held, passed, 2).manifests
    assert not memory_garbage(held, passed, 2, [C.id]).manifests, "given up by the incarnation before"
    assert C.id in memory_garbage(held, {**passed, Tier.PEER: own.generation}, 2).manifests
    undecided = inventory([A, C, own], [TEN, TWENTY, commit(own)], Branch(2, decided=False))
    assert C.id in memory_garbage(undecided, passed, 2).manifests


def test_undecided_generation_of_an_earlier_incarnation_is_garbage() -> None:
    left = base(25)
    held = inventory([A, left], [TEN])
    assert memory_garbage(held, marks(10, 10), 2).manifests == {left.id}
    assert not memory_garbage(held, marks(10, 10), 1).manifests


def test_a_journal_keeps_its_base() -> None:
    first = segment(11, A)
    held = inventory([A, first], [commit(first)])
    assert not memory_garbage(held, marks(11, 11), 1).manifests


def test_a_watermark_only_grows() -> None:
    grown = advance(advance({}, Tier.LOCAL, Generation(1, 20)), Tier.LOCAL, Generation(1, 10))
    assert grown == {Tier.LOCAL: Generation(1, 20)}


def digests(*manifests: Manifest) -> dict[str, float]:
    return {chunk.digest: 0.0 for one in manifests for chunk in one.chunks}


def test_store_keeps_the_newest_and_every_nth_step() -> None:
    steps = [base(step) for step in (10, 20, 30, 40, 50)]
    records = [commit(one, parent=Generation(1, one.generation.step - 10) or None) for one in steps]
    stored = inventory(steps, records)
    garbage = remote_garbage(stored, digests(*steps), Keep(2), 1000.0, 100.0)
    assert [one.step for one in garbage.records] == [10, 20, 30]
    assert garbage.manifests == {one.id for one in steps[:3]} and garbage.chunks == set(digests(*steps[:3]))
    garbage = remote_garbage(stored, digests(*steps), Keep(1, every_steps=20), 1000.0, 100.0)
    assert [one.step for one in garbage.records] == [30]
    garbage = remote_garbage(stored, digests(*steps), Keep(1), 1000.0, 100.0, pinned=[Generation(1, 10)])
    assert [one.step for one in garbage.records] == [20, 30, 40]


def test_store_keeps_young_generations_and_undecided_branches() -> None:
    young, late = base(30), base(40, incarnation=2)
    stored = inventory([A, young, late], [commit(A)], Branch(2, decided=False))
    garbage = remote_garbage(
        stored, digests(A) | {chunk.digest: 950.0 for chunk in young.chunks}, Keep(1), 1000.0, 100.0
    )
    assert not garbage.records and not garbage.manifests and not garbage.chunks and not garbage.branches


def test_shared_chunks_stay_while_a_manifest_uses_them() -> None:
    shared = Chunk("ab" * 16, 1)
    old = Manifest(Generation(1, 10), "0", (shared, Chunk("01" * 16, 1)), 2)
    new = Manifest(Generation(1, 20), "0", (shared,), 1)
    stored = inventory([old, new], [commit(old), commit(new, parent=Generation(1, 10))])
    garbage = remote_garbage(stored, digests(old, new), Keep(1), 1000.0, 100.0)
    assert garbage.chunks == {"01" * 16} and garbage.manifests == {old.id}


def test_store_without_records_loses_no_chunk() -> None:
    assert not remote_garbage(inventory([A]), digests(A), Keep(1), 1e9, 1.0).chunks
