"""Which nodes' agents have heard of an agent that the hub may not hear of. Pure: times are given.

An agent that is cut off asks the other agents of its jobs to remember that it lives; they say it with their
heartbeats. What is kept here is by how many of them it may still believe itself to be in company.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from convoy_controllers.trainingjob.nodes import FENCE_SECONDS


@dataclass(slots=True)
class Vouches:
    """Times are monotonic seconds. Bounded by the square of the nodes that the caller lets in."""

    _asked: dict[str, dict[str, float]] = field(default_factory=dict)
    """By the node that asked, by the node that says so: when it last asked."""

    def heard(self, voter: str, vouched: Iterable[tuple[str, float]], now: float) -> None:
        """The agent of `voter` says which nodes' agents have asked it, and how many seconds ago."""
        for node, age in vouched:
            if node != voter and age <= FENCE_SECONDS:
                self._asked.setdefault(node, {})[voter] = now - age

    def by(self, node: str, now: float) -> frozenset[str]:
        """Nodes whose agents have heard of that node's within the fencing time."""
        asked = self._asked.get(node)
        if not asked:
            return frozenset()
        return frozenset(voter for voter, at in asked.items() if now - at <= FENCE_SECONDS)

    def prune(self, now: float) -> None:
        """Forgets what is too old to count."""
        for node, asked in list(self._asked.items()):
            fresh = {voter: at for voter, at in asked.items() if now - at <= FENCE_SECONDS}
            if fresh:
                self._asked[node] = fresh
            else:
                del self._asked[node]
