"""The changes between two polls of agents' liveness: which jobs are to be woken. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from convoy_controllers.liveness.judge import Liveness


@dataclass(frozen=True, slots=True)
class Changes:
    """What one poll has found, by node."""

    departed: tuple[str, ...]
    """Agents that were removed for good, and are expected no more."""
    lost: frozenset[str]
    """Agents that fell silent since the last poll."""
    back: frozenset[str]
    """Agents that came since, or whose silence is believed no more."""
    silent: frozenset[str]
    """All agents whose silence is too long and believed."""


@dataclass(slots=True)
class LivenessPoll:
    """The agents that were present, and those that were silent, at the last poll."""

    liveness: Liveness
    present: set[str] = field(default_factory=set)
    _silent: frozenset[str] = frozenset()

    def arrived(self, node: str) -> bool:
        """Count an agent as present at once; return whether it was absent."""
        if node in self.present:
            return False
        self.present.add(node)
        self._silent -= {node}
        return True

    def drop(self, node: str) -> None:
        """Drop a node that is no more, or whose agent is no more."""
        self.liveness.drop(node)
        self.present.discard(node)
        self._silent -= {node}

    def poll(self, occupied: Collection[str], now: float) -> Changes:
        """Return what has changed since the last poll. `occupied`: nodes that hold workers."""
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
        """Return whether a node's agent was silent at the last poll, and has not come since."""
        return node in self._silent
