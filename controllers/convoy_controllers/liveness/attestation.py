"""Attestations: agents confirm to the hub that a node without contact to the hub is alive. Pure: the caller
passes times.

An agent that is cut off requests an attestation from the other agents of its jobs. Each of these remembers
the request and reports it with its heartbeats. The hub counts the agents that a silent agent has reached in
this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from convoy_controllers.liveness.fence import FENCE_SECONDS

REMEMBER_SECONDS = FENCE_SECONDS + 10.0
"""Seconds for which an agent remembers a request. The hub counts a request for a shorter time."""
MAX_NODES = 1024
"""Maximum number of nodes whose requests an agent remembers. If there are more, the oldest request is
dropped.
"""


class Member(Protocol):
    """One slot of an incarnation."""

    @property
    def node(self) -> str:
        """Return the node of the slot's pod."""
        ...


class Plan(Protocol):
    """The nodes of one incarnation, as an agent's assignment lists them."""

    @property
    def incarnation(self) -> int:
        """Return the number of the incarnation."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """Return all slots of the incarnation."""
        ...


PlanT = TypeVar("PlanT", bound=Plan)


def newest_plan(plans: Iterable[PlanT]) -> PlanT | None:
    """Return the plan of the highest incarnation; None without plans."""
    return max(plans, key=lambda plan: plan.incarnation, default=None)


def may_attest(plans: Iterable[Plan], node: str) -> bool:
    """Return True if an agent with these plans of a job may attest `node`.

    The agent may not if the newest plan has no member on `node`, because the job has continued without that
    node.
    """
    newest = newest_plan(plans)
    return newest is not None and node in {member.node for member in newest.members}


@dataclass(slots=True)
class AttestationRequests:
    """The requests that one agent has received. Times are seconds of a clock that never goes back."""

    _requested: dict[str, float] = field(default_factory=dict)

    def record(self, node: str, now: float) -> None:
        """Record that the agent of `node` has requested an attestation at `now`."""
        self._requested.pop(node, None)
        self._requested[node] = now
        if len(self._requested) > MAX_NODES:
            del self._requested[next(iter(self._requested))]

    def recent(self, now: float) -> list[tuple[str, float]]:
        """Return the node and the age in seconds of each remembered request."""
        for node in [node for node, at in self._requested.items() if now - at > REMEMBER_SECONDS]:
            del self._requested[node]
        return [(node, now - at) for node, at in self._requested.items()]


@dataclass(slots=True)
class Attestations:
    """The attestations that the hub has received. Times are monotonic seconds.

    The memory grows at most with the square of the number of nodes that the caller admits.
    """

    _requested: dict[str, dict[str, float]] = field(default_factory=dict)
    """Time of the last request, by attested node and then by attesting node."""

    def record(self, voter: str, requests: Iterable[tuple[str, float]], now: float) -> None:
        """Record a report of the agent on node `voter`. Each request is a node and the age of its request
        in seconds.
        """
        for node, age in requests:
            if node != voter and age <= FENCE_SECONDS:
                self._requested.setdefault(node, {})[voter] = now - age

    def voters(self, node: str, now: float) -> frozenset[str]:
        """Return the nodes whose agents received a request of `node` within the last FENCE_SECONDS."""
        requested = self._requested.get(node)
        if not requested:
            return frozenset()
        return frozenset(voter for voter, at in requested.items() if now - at <= FENCE_SECONDS)

    def prune(self, now: float) -> None:
        """Drop attestations that are too old to count."""
        for node, requested in list(self._requested.items()):
            fresh = {voter: at for voter, at in requested.items() if now - at <= FENCE_SECONDS}
            if fresh:
                self._requested[node] = fresh
            else:
                del self._requested[node]
