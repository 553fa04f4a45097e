"""Tests of garbage collection by agents whose clock is wrong. The grace period must still protect objects."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.agents.stores.places import (
    GRACE,
    Place,
    chunk_of,
    noise,
    put,
    record_of,
    s3_place,
    shard,
    volume_place,
)

from convoy_agents.tiercheck.stores import s3, volume
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.retention import Keep


@pytest.mark.parametrize("off", [-3 * GRACE, 3 * GRACE], ids=["behind", "ahead"])
def test_bucket_garbage_collection_uses_the_bucket_s_clock(
    server: int, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    there = s3_place(f"http://127.0.0.1:{server}")
    monkeypatch.setattr(s3, "time", SimpleNamespace(time=lambda: time.time() + off))
    store = there.store()
    for step in (1, 2):
        assert store.commit(record_of(put(store, shard(step, [noise(step)]), [noise(step)])))
    store.collect_garbage(Keep(last=1))
    assert there.held("records") == {"gen-1-2"}
    assert there.held("chunks") == {chunk_of(noise(step)).digest for step in (1, 2)}, "all is young"
    there.age_all()
    store.collect_garbage(Keep(last=1))
    assert there.held("chunks") == {chunk_of(noise(2)).digest}


@pytest.mark.parametrize("off", [-0.45 * GRACE, 0.45 * GRACE], ids=["behind", "ahead"])
def test_a_volume_is_used_while_clocks_agree_within_half_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    there = volume_place(tmp_path)
    monkeypatch.setattr(volume, "time", SimpleNamespace(time=lambda: time.time() + off))
    store = there.store()
    for step in (1, 2):
        assert store.commit(record_of(put(store, shard(step, [noise(step)]), [noise(step)])))
    unfinished = put(store, shard(3, [noise(3)]), [noise(3)])
    store.collect_garbage(Keep(last=1))
    assert there.held("records") == {"gen-1-2"}
    assert there.held("chunks") == {chunk_of(noise(step)).digest for step in (1, 2, 3)}, "all is young"
    assert store.commit(record_of(unfinished)), "what was under way is whole"
    there.age_all()
    store.collect_garbage(Keep(last=1))
    assert there.held("chunks") == {chunk_of(noise(3)).digest}


def test_the_newest_generation_has_the_highest_incarnation_and_step(place: Place) -> None:
    """Three generations were saved in another order than that of their incarnations and steps. Garbage
    collection must ignore the times of their saves.
    """
    store = place.store()
    for generation, at in {(1, 8): 3e9, (1, 9): 2e9, (2, 3): 1.0}.items():
        one = put(
            store, shard(generation[1], [noise(generation)], incarnation=generation[0]), [noise(generation)]
        )
        assert store.commit(record_of(one, saved=at))
    assert store.collect_garbage(Keep(last=1)).records == (Generation(1, 8), Generation(1, 9))
    assert place.held("records") == {"gen-2-3"}
