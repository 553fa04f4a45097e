"""Groups of workers that compute one batch together: sequence parallelism with persistent workers.

A group has an epoch number. A regroup only sends each worker its new group: no process starts, and weights
stay where they are. Every message of a group carries its epoch. A worker refuses those of another epoch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]
MAX_PARTS = 256
"""Parts of peers that a worker keeps before it needs them. More of them mean that the group is broken."""


@dataclass(frozen=True, slots=True)
class Group:
    """Workers that compute together. The first one is the leader, which alone pulls leases."""

    epoch: int
    members: tuple[str, ...]

    @property
    def degree(self) -> int:
        """Return the number of parts in which the tokens are split."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of one call of the policy."""

    number: int
    """Number of the call in its epoch."""
    version: int
    points: Array
    times: Array
    prompts: Any


@dataclass(frozen=True, slots=True)
class Part:
    """The keys and values of a worker's tokens in one layer."""

    epoch: int
    call: int
    layer: int
    index: int
    keys: Array
    values: Array


class GroupBroken(Exception):
    """The group cannot finish the call: a member is lost or late, or has joined another group."""


class PendingPart(Protocol):
    """The answer of a peer that has not come yet."""

    def get(self, seconds: float) -> Array:
        """Return the peer's velocities. Raises GroupBroken if they are not there in time."""


class Peers(Protocol):
    """The other members of a group."""

    def share(self, member: str, epoch: int, batch: Batch) -> PendingPart:
        """Let a member compute its tokens."""

    def send(self, member: str, part: Part) -> None:
        """Send keys and values to a member. Do not wait for it."""


def form(workers: Mapping[str, Sequence[str]], degree: int, epoch: int) -> list[Group]:
    """Return groups of at most `degree` workers, each on one node where its weights are. `workers`: names of
    the workers of each node.

    A node with fewer workers than the degree has smaller groups, whose degrees are powers of two.
    """
    groups: list[Group] = []
    for node in sorted(workers):
        left = list(workers[node])
        size = degree
        while left:
            while size > len(left):
                size //= 2
            groups.append(Group(epoch, tuple(left[:size])))
            left = left[size:]
    return groups


def fitting_degree(workers: int, requests: int, degrees: Sequence[int]) -> int:
    """Return the degree for `requests` open requests: the largest one that leaves a group for each of them.

    With as many requests as workers, every worker computes alone, as splitting costs messages.
    """
    possible = [one for one in degrees if one * max(1, requests) <= workers]
    return max(possible, default=min(degrees))


class Membership:
    """The present group of one worker, and the parts that its peers have sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refused = 0
        """Number of messages of another epoch."""
        self._changed = threading.Condition()
        self._group = Group(0, (name,))
        self._peers: Peers | None = None
        self._parts: dict[tuple[int, int], dict[int, tuple[Array, Array]]] = {}

    @property
    def group(self) -> Group:
        """Return the present group."""
        return self._group

    @property
    def peers(self) -> Peers:
        """Return the other members. Raises GroupBroken in a group of one."""
        if self._peers is None:
            raise GroupBroken("the worker is alone")
        return self._peers

    @property
    def leads(self) -> bool:
        """Return True if this worker leads its group."""
        return self._group.members[0] == self.name

    def join(self, group: Group, peers: Peers | None) -> bool:
        """Join a group. Return False for an epoch that is not later than the present one."""
        with self._changed:
            if group.epoch <= self._group.epoch or self.name not in group.members:
                return False
            self._group, self._peers = group, peers
            self._parts.clear()
            self._changed.notify_all()
            return True

    def check(self, epoch: int) -> Group:
        """Return the present group. Raises GroupBroken if it has another epoch."""
        group = self._group
        if group.epoch != epoch:
            self.refused += 1
            raise GroupBroken(f"epoch {epoch} is over: {self.name} is in epoch {group.epoch}")
        return group

    def receive(self, part: Part) -> bool:
        """Keep a peer's part. Return False for a part of another epoch."""
        with self._changed:
            if part.epoch != self._group.epoch:
                self.refused += 1
                return False
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            self._parts.setdefault((part.call, part.layer), {})[part.index] = (part.keys, part.values)
            self._changed.notify_all()
            return True

    def gather(self, own: Part, seconds: float) -> tuple[Array, Array]:
        """Send this worker's part to its peers and return the keys and values of all tokens, in order.

        Raises GroupBroken if a part is missing after `seconds`, or if the group changes.
        """
        group = self.check(own.epoch)
        for member in group.members:
            if member != self.name:
                self.peers.send(member, own)
        key, deadline = (own.call, own.layer), time.monotonic() + seconds

        def complete() -> bool:
            found = self._parts.get(key, {})
            return self._group.epoch != own.epoch or len(found) == group.degree - 1

        with self._changed:
            self._changed.wait_for(complete, max(0.0, deadline - time.monotonic()))
            if self._group.epoch != own.epoch:
                raise GroupBroken("the group has changed")
            found = {**self._parts.pop(key, {}), own.index: (own.keys, own.values)}
        if len(found) < group.degree:
            missing = [one for index, one in enumerate(group.members) if index not in found]
            raise GroupBroken(f"no part of {', '.join(missing)} after {seconds:g} s")
        ordered = [found[index] for index in range(group.degree)]
        return (
            np.concatenate([keys for keys, _ in ordered], axis=2),
            np.concatenate([values for _, values in ordered], axis=2),
        )
