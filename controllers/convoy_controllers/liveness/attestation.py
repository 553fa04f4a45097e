"""Attestations: agents confirm to the hub that a node cut off from it is alive. Pure: the caller passes
times.

An agent that is cut off requests an attestation from the other agents of its jobs. Each of them remembers
the request and reports it with its heartbeats. The hub counts the agents that a silent one may still have
reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from convoy_controllers.liveness.fence import FENCE_SECONDS

REMEMBER_SECONDS = FENCE_SECONDS + 10.0
"""Seconds for which an agent remembers a request: longer than the hub counts it."""
MAX_NODES = 1024
"""Nodes whose requests an agent remembers at once. Beyond that the oldest request is dropped."""


class Member(Protocol):
    """One slot of an incarnation."""

    @property
    def node(self) -> str:
        """The node of its pod."""
        ...


class Plan(Protocol):
    """An assignment, reduced to the nodes of its incarnation."""

    @property
    def incarnation(self) -> int:
        """Its incarnation."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """All slots of the incarnation."""
        ...


PlanT = TypeVar("PlanT", bound=Plan)


def newest_plan(plans: Iterable[PlanT]) -> PlanT | None:
    """Return the plan of the highest incarnation; None without plans."""
    return max(plans, key=lambda plan: plan.incarnation, default=None)


def may_attest(plans: Iterable[Plan], node: str) -> bool:
    """Return True if an agent with these plans of a job may attest `node`.

    It may not if the newest plan has no member on `node`: the job continued without that node.
    """
    newest = newest_plan(plans)
    return newest is not None and node in {member.node for member in newest.members}


@dataclass(slots=True)
class AttestationRequests:
    """The requests received by one agent. Times are seconds of a clock that only moves forward."""

    _requested: dict[str, float] = field(default_factory=dict)

    def record(self, node: str, now: float) -> None:
        """Record a request of `node`."""
        self._requested.pop(node, None)
        self._requested[node] = now
        if len(self._requested) > MAX_NODES:
            del self._requested[next(iter(self._requested))]

    def recent(self, now: float) -> list[tuple[str, float]]:
        """Return (node, seconds since its last request) for each remembered request."""
        for node in [node for node, at in self._requested.items() if now - at > REMEMBER_SECONDS]:
            del self._requested[node]
        return [(node, now - at) for node, at in self._requested.items()]


@dataclass(slots=True)
class Attestations:
    """The attestations received by the hub. Times are monotonic seconds.

    Memory is bounded by the square of the number of nodes that the caller admits.
    """

    _requested: dict[str, dict[str, float]] = field(default_factory=dict)
    """Time of the last request, by attested node and attesting node."""

    def record(self, voter: str, requests: Iterable[tuple[str, float]], now: float) -> None:
        """Record the report of the agent of `voter`: nodes, and the seconds since each one's request."""
        for node, age in requests:
            if node != voter and age <= FENCE_SECONDS:
                self._requested.setdefault(node, {})[voter] = now - age

    def voters(self, node: str, now: float) -> frozenset[str]:
        """Return the nodes whose agents `node` has reached with a request within the fencing time."""
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
