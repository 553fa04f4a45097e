"""A fake store backend with its own clock, and functions that save a job's generations in it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container, Iterator
from typing import Any

from tests.unit.agents.stores.places import (
    AT_ONCE,
    GRACE,
    RULES,
    noise,
    record_of,
    saved,
    shard,
)

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Listing
from convoy_agents.tiercheck.stores.store import CommitRules, Store
from convoy_agents.tiercheck.stores.upload import TransferLimits, upload
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.retention import Keep, reachable


class Crash(BaseException):
    """Simulates the crash of a process."""


class Memory:
    """Blobs in a dictionary, with a clock of their own. Each operation calls `before` at its start and
    `after` at its end.
    """

    def __init__(self) -> None:
        self.now = 1e6
        self.found: dict[str, tuple[bytes, float]] = {}
        self.before: Callable[[str], None] = lambda operation: None
        self.after: Callable[[str], None] = lambda operation: None

    @property
    def where(self) -> str:
        return "memory"

    @contextlib.contextmanager
    def _step(self, operation: str) -> Iterator[None]:
        self.before(operation)
        yield
        self.after(operation)

    def put(self, key: str, data: digest.Buffer) -> None:
        with self._step(f"put {key}"):
            self.found[key] = (bytes(data), self.now)

    def create(self, key: str, data: digest.Buffer) -> bool:
        with self._step(f"create {key}"):
            return self.found.setdefault(key, new := (bytes(data), self.now)) is new

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        with self._step(f"get {key}"):
            return self.found[key][0] if key in self.found else None

    def names(self, folder: str, wanted: Container[str] | None = None) -> Listing:
        with self._step(f"list {folder}"):
            there = {
                key[len(folder) + 1 :]: at
                for key, (_, at) in self.found.items()
                if key.startswith(folder + "/")
            }
            return Listing(
                self.now, {name: at for name, at in there.items() if wanted is None or name in wanted}
            )

    def touch(self, key: str) -> bool:
        with self._step(f"touch {key}"):
            if key in self.found:
                self.found[key] = (self.found[key][0], self.now)
            return key in self.found

    def remove(self, key: str) -> None:
        with self._step(f"remove {key}"):
            self.found.pop(key, None)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        pass

    def refuses_damage(self, key: str) -> bool:
        return False

    def view(self, before: Callable[[str], None], after: Callable[[str], None] = lambda op: None) -> Memory:
        """Return a view of the same blobs for another process, with its own `before` and `after`."""
        view = View(self)
        view.before, view.after = before, after
        return view

    def broken(self) -> list[str]:
        """Return the committed shards that cannot be restored, because their manifest or a chunk is
        missing.
        """
        self_view = Store(View(self), "team", "uid-1", rules=RULES)
        found = self_view.inventory()
        chunks = self_view.chunks()
        bad = []
        for generation, record in found.records.items():
            for key in reachable(record.shards.values(), found.manifests):
                one = found.manifests.get(key)
                if one is None or any(chunk.digest not in chunks for chunk in one.chunks):
                    bad.append(f"{generation.name}: {key}")
        return bad


class View(Memory):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self.found = memory.found

    @property
    def now(self) -> float:
        return self._memory.now

    @now.setter
    def now(self, value: float) -> None:
        pass


class Serial(Store):
    """A Store that runs operations one at a time instead of in parallel."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._part.run_parallel = lambda work, items: [work(one) for one in items]  # type: ignore[method-assign]


def serial(memory: Memory, kind: type[Store] = Serial) -> Store:
    rules = CommitRules(grace_seconds=GRACE, clock=lambda: memory.now)
    return kind(memory, "team", "uid-1", rules=rules)


def memory_with_old_generations() -> Memory:
    """Return a Memory with two generations. Both are older than the grace period, and the second replaces
    the first, which is therefore obsolete.
    """
    memory = Memory()
    store = serial(memory)
    saved(store, 1, noise(1), noise(2))
    saved(store, 2, noise(2), noise(3), parent=1)
    memory.now += 3 * GRACE
    return memory


PIECES = [noise(1), noise(3), noise(4)]
"""The chunks of the third generation. The first chunk belongs to the obsolete generation too, the second to
the generation that replaced it, and the third to no other generation.
"""
NEXT = shard(3, PIECES)


def save_and_collect(store: Store) -> None:
    """Upload the third generation, commit it, and collect garbage."""
    limits = TransferLimits(threads=1, retries=AT_ONCE)
    upload(store, NEXT, PIECES.__getitem__, stop=threading.Event(), limits=limits)
    assert store.commit(record_of(NEXT, parent=Generation(1, 2)))
    store.collect_garbage(Keep(last=1))


def count_operations() -> int:
    memory, seen = memory_with_old_generations(), []
    save_and_collect(serial(memory.view(seen.append)))
    return len(seen)
