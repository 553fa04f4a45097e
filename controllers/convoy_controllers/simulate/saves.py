"""Where the state of a simulated job is kept: in the memory of machines, and in its store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convoy_controllers.commands import Assign
from convoy_controllers.views import CommitView


@dataclass(slots=True)
class SavedGeneration:
    """One that was committed."""

    step: int
    shards: list[set[str]]
    """By pod that saved, the machines that have its share in memory."""


class SavedCheckpoints:
    """Of one job: the newest generation in memory, and the step of the newest in its store."""

    def __init__(self) -> None:
        self._memory: SavedGeneration | None = None
        self._stored = 0
        self._stored_at = -math.inf

    def commit(
        self, incarnation: int, step: int, plans: Iterable[Assign], now: float
    ) -> dict[str, CommitView]:
        """Keeps what the pods of these assignments have saved. What agents know then, by tier."""
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
        """The memory of a machine is gone."""
        for holders in self._memory.shards if self._memory else ():
            holders.discard(machine)

    def restore(self, reachable: Callable[[str], bool]) -> int:
        """As `newest`, for a run that goes on from there: what it has not found is no state any more."""
        found = self.newest(reachable)
        if self._memory is not None and self._memory.step != found:
            self._memory = None
        return found

    def newest(self, reachable: Callable[[str], bool]) -> int:
        """The step that a restore finds in the memory of the machines that are reachable, or in the store; 0
        when nothing is whole.
        """
        found = self._memory
        if found is not None and all(any(map(reachable, holders)) for holders in found.shards):
            return found.step
        return self._stored
