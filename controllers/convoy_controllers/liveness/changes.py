"""Changes of agents' liveness between two polls; the caller wakes the affected jobs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from convoy_controllers.liveness.judge import Liveness


@dataclass(frozen=True, slots=True)
class Changes:
    """Result of one poll, by node."""

    departed: tuple[str, ...]
    """Agents that were removed for good, and are no longer expected."""
    lost: frozenset[str]
    """Agents that became silent since the last poll."""
    back: frozenset[str]
    """Agents that returned since then, or whose silence is no longer believed."""
    silent: frozenset[str]
    """All agents whose silence is too long and is believed."""


@dataclass(slots=True)
class LivenessPoll:
    """Agents that were present, and agents that were silent, at the last poll."""

    liveness: Liveness
    present: set[str] = field(default_factory=set)
    _silent: frozenset[str] = frozenset()

    def arrived(self, node: str) -> bool:
        """Count an agent as present at once. Return True if it was absent."""
        if node in self.present:
            return False
        self.present.add(node)
        self._silent -= {node}
        return True

    def drop(self, node: str) -> None:
        """Drop a node that no longer exists, or that no longer has an agent."""
        self.liveness.drop(node)
        self.present.discard(node)
        self._silent -= {node}

    def poll(self, occupied: Collection[str], now: float) -> Changes:
        """Return the changes since the last poll. `occupied`: nodes with workers."""
        departed = tuple(self.liveness.departed(occupied, now))
        for node in departed:
            self.drop(node)
        self.liveness.expect(occupied, now)
        present = self.liveness.present(now)
        overdue = self.liveness.quiet(self.liveness.silent_seconds, now)
        silent = frozenset(node for node in overdue if self.liveness.silent(node, now))
        lost = frozenset((self.present - present) | (silent - self._silent))
        back = frozenset((present - self.present) | (self._silent - silent)) - lost
        self.present, self._silent = present, silent
        return Changes(departed, lost, back, silent)

    def silent(self, node: str) -> bool:
        """Return True if a node's agent was silent at the last poll and has not returned since."""
        return node in self._silent
