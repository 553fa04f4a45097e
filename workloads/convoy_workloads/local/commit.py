"""The agents' part in the commit of a checkpoint, for a job whose pods have one keeper. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Reply = tuple[int, dict[str, Any]]
"""A rank, and what it is told."""


class CommitDesk:
    """Collects PREPARED from every rank, then has rank 0 write the record, then tells all.

    An incarnation older than the newest one seen is refused.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._world = 0
        self._prepared: dict[tuple[int, int], set[int]] = {}
        self.committed: list[tuple[int, int]] = []

    def form(self, incarnation: int, world: int) -> None:
        """A new incarnation of `world` ranks; what the old one had not committed, it never will."""
        self._incarnation, self._world = incarnation, world
        self._prepared.clear()

    def take(self, rank: int, message: Mapping[str, Any]) -> list[Reply]:
        """What to tell whom after a rank's `prepared` or `recorded`."""
        generation = int(message["incarnation"]), int(message["step"])
        named = {"incarnation": generation[0], "step": generation[1]}
        if generation[0] < self._incarnation:
            return [(rank, {"type": "refused", **named, "seen": self._incarnation})]
        if message["type"] == "prepared":
            if generation in self.committed:
                return [(rank, {"type": "committed", **named})]
            ready = self._prepared.setdefault(generation, set())
            ready.add(rank)
            return [(0, {"type": "commit", **named})] if len(ready) == self._world else []
        if generation not in self._prepared:
            return []
        del self._prepared[generation]
        self.committed.append(generation)
        return [(rank, {"type": "committed", **named}) for rank in range(self._world)]
