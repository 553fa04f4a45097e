"""Changes of agents' liveness between two polls. The caller wakes the affected jobs. Pure: the caller
passes times.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from convoy_controllers.liveness.judge import Liveness


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that one poll has found, by node."""

    departed: tuple[str, ...]
    """Nodes whose agents were removed for good and are no longer expected."""
    lost: frozenset[str]
    """Nodes whose agents became silent since the last poll."""
    back: frozenset[str]
    """Nodes whose agents have sent a message again since the last poll, or whose silence is attributed to
    the operator's own network since then.
    """
    silent: frozenset[str]
    """All nodes whose agents count as absent because of their silence. Nodes whose silence is attributed to
    the operator's own network are left out.
    """


@dataclass(slots=True)
class LivenessPoll:
    """The agents that were present and those that were silent at the last poll."""

    liveness: Liveness
    present: set[str] = field(default_factory=set)
    _silent: frozenset[str] = frozenset()

    def arrived(self, node: str) -> bool:
        """Count the node's agent as present from now on. Return True if the agent was absent."""
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
