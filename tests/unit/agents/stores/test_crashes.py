"""Tests of crashes between any two operations of a save or a garbage collection. After each crash, every
object that a committed record needs must exist.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.stores.memory_store import (
    NEXT,
    Crash,
    Serial,
    count_operations,
    memory_with_old_generations,
    save_and_collect,
    serial,
)
from tests.unit.agents.stores.places import (
    GRACE,
    RULES,
    noise,
    saved,
    volume_place,
)

from convoy_agents.tiercheck.stores.garbage_collection import MARKER_SECONDS
from convoy_controllers.checkpoint.retention import Keep


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_crash_between_any_two_operations_leaves_no_broken_record(done: bool) -> None:
    total = count_operations()
    assert total > 20
    for number in range(total):
        memory, left = memory_with_old_generations(), [number]

        def step(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash(operation)

        view = memory.view(*((lambda op: None, step) if done else (step,)))
        with pytest.raises(Crash):
            save_and_collect(serial(view))
        assert not memory.broken(), number
        memory.now += MARKER_SECONDS
        save_and_collect(serial(memory))
        assert not memory.broken()
        memory.now += 2 * MARKER_SECONDS + 2 * GRACE
        serial(memory).collect_garbage(Keep(last=1))
        names = {key.rpartition("/")[2] for key in memory.found}
        assert names == {"gen-1-3", NEXT.id, *(chunk.digest for chunk in NEXT.chunks)}, number


def test_a_crash_between_any_two_system_calls_on_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir")
    # A crash of the process loses nothing that was written, so fsync only has to be a possible place of it.
    real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in calls}
    real["fsync"] = lambda descriptor: None
    left = [10**9]

    def patched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Crash(name)
            return real[name](*args, **more)

        return call

    total = 10**9
    number = 0
    while number < total:
        root = tmp_path / str(number)
        root.mkdir()
        place = volume_place(root)
        store = Serial(place.blobs, "team", "uid-1", rules=RULES)
        saved(store, 1, noise(1))
        place.age_all()
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, patched(name))
            left[0] = number
            with contextlib.suppress(Crash):
                saved(store, 2, noise(2), parent=1)
                store.collect_garbage(Keep(last=1))
                assert len(place.held("chunks")) == 1
                total = number
        found = store.inventory()
        assert found.records
        for record in found.records.values():
            assert set(record.shards.values()) <= found.manifests.keys(), number
            for key in record.shards.values():
                for chunk in found.manifests[key].chunks:
                    store.get_chunk(chunk)
        number += 1
    assert number > 30
