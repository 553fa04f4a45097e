"""Tests of uploads during garbage collections. The operations of all processes are interleaved at random."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.agents.stores.memory_store import PIECES, Memory, Serial, memory_with_old_generations, serial
from tests.unit.agents.stores.places import (
    AT_ONCE,
    noise,
    record_of,
    shard,
)

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import TransferLimits, upload
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Record
from convoy_controllers.checkpoint.retention import Keep


class Actor:
    """A simulated process that runs in a thread. Each call of `step` lets it run until its next operation
    on the store.
    """

    def __init__(self, memory: Memory, kind: type[Store], life: Callable[[Store], None]) -> None:
        self._turn = threading.Semaphore(0)
        self._rests = threading.Semaphore(0)
        self.over = False
        self.error: BaseException | None = None
        self.store = serial(memory.view(self._wait), kind)
        self._life = life
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._rests.acquire()

    def step(self) -> None:
        self._turn.release()
        self._rests.acquire()

    def _wait(self, operation: str) -> None:
        self._rests.release()
        self._turn.acquire()

    def _run(self) -> None:
        try:
            self._life(self.store)
        except BaseException as error:
            self.error = error
        self.over = True
        self._rests.release()


def uploads(step: int, pieces: list[bytes], parent: int) -> Callable[[Store], None]:
    def life(store: Store) -> None:
        manifest = shard(step, pieces)
        for _ in range(50):
            with contextlib.suppress(StoreError):
                upload(
                    store,
                    manifest,
                    pieces.__getitem__,
                    stop=threading.Event(),
                    limits=TransferLimits(threads=1, retries=AT_ONCE),
                )
                for _ in range(10):
                    try:
                        assert store.commit(record_of(manifest, parent=Generation(1, parent)))
                        return
                    except StoreError as error:
                        if not error.retriable:
                            raise
        raise AssertionError("it never came through")

    return life


def collects(store: Store) -> None:
    for _ in range(2):
        store.collect_garbage(Keep(last=1))


def race(seed: int, kind: type[Store]) -> list[str]:
    """Run two uploads and two garbage collections on a store with an obsolete generation, and interleave
    their operations at random. Return the committed shards that cannot be restored afterwards.
    """
    chance = random.Random(seed)
    memory = memory_with_old_generations()
    actors = [
        Actor(memory, kind, uploads(3, PIECES, 2)),
        Actor(memory, kind, uploads(4, [noise(1), noise(2)], 2)),
        Actor(memory, kind, collects),
        Actor(memory, kind, collects),
    ]
    while alive := [one for one in actors if not one.over]:
        # Let one actor do up to 20 operations in a row. The actor may then finish an upload or a deletion
        # between two operations of another actor.
        actor = chance.choice(alive)
        for _ in range(chance.choice((1, 2, 5, 20))):
            if not actor.over:
                actor.step()
                memory.now += chance.choice((0.0, 0.0, 1.0))
    for actor in actors:
        if actor.error:
            raise actor.error
    return memory.broken()


def test_concurrent_uploads_and_deletions_break_no_record() -> None:
    for seed in range(150):
        assert not race(seed, Serial), seed


class CommitsUnchecked(Serial):
    """A store that commits without checking that the needed objects exist."""

    def _protect_objects(self, record: Record) -> None:
        pass


class IgnoresMarkers(Serial):
    """A store that commits in spite of deletion markers."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._garbage.check_none_running = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [CommitsUnchecked, IgnoresMarkers])
def test_the_races_break_records_without_the_checks(kind: type[Store]) -> None:
    assert any(race(seed, kind) for seed in range(150))
