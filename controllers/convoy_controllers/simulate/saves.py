"""The checkpoints of a simulated job, in the memory of machines and in its store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convoy_controllers.commands import Assign
from convoy_controllers.views import CommitView


@dataclass(slots=True)
class SavedGeneration:
    """A committed generation."""

    step: int
    shards: list[set[str]]
    """Machines that hold each pod's shard in memory."""


class SavedCheckpoints:
    """The newest generation of a job in memory, and the step of the newest one in its store."""

    def __init__(self) -> None:
        self._memory: SavedGeneration | None = None
        self._stored = 0
        self._stored_at = -math.inf

    def commit(
        self, incarnation: int, step: int, plans: Iterable[Assign], now: float
    ) -> dict[str, CommitView]:
        """Commit the step that the pods of these assignments have saved. Return the commit of each tier
        that it reached.
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
        """Drop the shards in a machine's memory."""
        for holders in self._memory.shards if self._memory else ():
            holders.discard(machine)

    def restore(self, reachable: Callable[[str], bool]) -> int:
        """Return `newest` and continue from it. A generation in memory that was not found is dropped."""
        found = self.newest(reachable)
        if self._memory is not None and self._memory.step != found:
            self._memory = None
        return found

    def newest(self, reachable: Callable[[str], bool]) -> int:
        """Return the newest step that is complete in the memory of reachable machines, else the step in the
        store; 0 if there is none.
        """
        found = self._memory
        if found is not None and all(any(map(reachable, holders)) for holders in found.shards):
            return found.step
        return self._stored
