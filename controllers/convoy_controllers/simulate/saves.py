"""Checkpoints of a simulated job, in the memory of machines and in the job's store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convoy_controllers.commands import Assign
from convoy_controllers.views import CommitView


@dataclass(slots=True)
class SavedGeneration:
    """A generation that is committed in memory."""

    step: int
    shards: list[set[str]]
    """Names of the machines that have a shard in memory: one set per shard. Each pod has one shard."""


class SavedCheckpoints:
    """A job's newest generation in memory, and the step of its newest generation in the store."""

    def __init__(self) -> None:
        self._memory: SavedGeneration | None = None
        self._stored = 0
        self._stored_at = -math.inf

    def commit(
        self, incarnation: int, step: int, plans: Iterable[Assign], now: float
    ) -> dict[str, CommitView]:
        """Commit a step that the pods of these assignments have saved. Return the commit at each tier that
        it reached.
        """
        memories = [(plan.node, plan.memory) for plan in plans if plan.memory is not None]
        self._memory = SavedGeneration(step, [{node, *memory.hosts} for node, memory in memories])
        tiers = {"local"}
        if memories and all(memory.copies for _, memory in memories):
            tiers.add("peer")
        store = next((memory.store for _, memory in memories), None)
        if store is not None and now >= self._stored_at + store.every_seconds:
            self._stored, self._stored_at = step, now
            tiers.add("remote")
        return dict.fromkeys(sorted(tiers), CommitView(incarnation, step, now))

    def lose(self, machine: str) -> None:
        """Drop the shards in the memory of a machine."""
        for holders in self._memory.shards if self._memory else ():
            holders.discard(machine)

    def restore(self, reachable: Callable[[str], bool]) -> int:
        """Return the step that a restart restores (see `newest`). If this is not the step of the generation
        in memory, drop that generation.
        """
        found = self.newest(reachable)
        if self._memory is not None and self._memory.step != found:
            self._memory = None
        return found

    def newest(self, reachable: Callable[[str], bool]) -> int:
        """Return the step of the generation in memory if reachable machines have all its shards.

        Otherwise return the step in the store; 0 if it has none.
        """
        found = self._memory
        if found is not None and all(any(map(reachable, holders)) for holders in found.shards):
            return found.step
        return self._stored
