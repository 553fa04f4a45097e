"""The restore of one pod: the decision which generation it restores, and the fetches of the shards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.tiercheck.deciding import RestoreFailed
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation

Unreadable = list[tuple[str, str]]
"""Copies of a shard that could not be read undamaged, each as a pair (node, shard id)."""


@dataclass(slots=True)
class PodRestore:
    """The restore of one pod. All ranks of the pod share it."""

    plan: Assignment
    attempt: int
    reply: hub_pb2.ResumeReply
    left: set[int]
    """Ranks of the pod that have not read all their shards yet."""
    fetched: set[str] = field(default_factory=set)
    """Ids of shards that were fetched to this node for the restore."""
    started: float = field(default_factory=time.monotonic)
    """Time of the pod's first restore request, in monotonic seconds."""
    _fetches: dict[str, asyncio.Task[Unreadable]] = field(default_factory=dict)
    """The running and finished fetches by shard id."""
    _ended: bool = False
    """True after `cancel`."""

    @property
    def chosen(self) -> Generation | None:
        """The generation to restore; None if the pod starts without a checkpoint."""
        if self.reply.outcome != hub_pb2.ResumeReply.FOUND:
            return None
        return Generation(self.reply.chosen.incarnation, self.reply.chosen.step)

    @property
    def shards(self) -> list[str]:
        """The names of the generation's shards, ordered by rank."""
        return [chain.shard for chain in self.reply.chains]

    def chain(self, shard: str) -> list[tuple[str, list[NodeAddress]]]:
        """Return the ids of a shard and of all shards that it extends, in the order of their generations.
        Each id comes with the nodes that have the shard.
        """
        places = [NodeAddress(one.node, one.peer_address) for one in self.reply.holders]
        for chain in self.reply.chains:
            if chain.shard == shard:
                return [(link.id, [places[index] for index in link.holders]) for link in chain.links]
        return []

    def start(self, key: str, fetch: Callable[[], Coroutine[None, None, Unreadable]]) -> None:
        """Start to fetch and check a shard with `fetch`, unless this restore has done so already. Start a
        failed fetch again, because the rank that asks may be a restarted process of the same pod.

        Raises RestoreFailed after `cancel`.
        """
        if self._ended:
            raise RestoreFailed("this restore of the pod has ended")
        if (task := self._fetches.get(key)) is None or _failed(task):
            task = self._fetches[key] = asyncio.create_task(fetch())
            # A rank gets the exception when it asks for the shard. No rank may ask, so mark it as retrieved.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def result(self, key: str) -> Unreadable:
        """Wait for the fetch of a shard, and return its result. Every rank of the pod gets the same result.

        Raises the error of the fetch. Raises RestoreFailed if `cancel` has ended the fetch.
        """
        task = self._fetches[key]
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise RestoreFailed("this restore of the pod has ended") from None
            raise

    def cancel(self) -> None:
        """End all fetches: the pod has left the node, makes another attempt, or needs no more shards."""
        self._ended = True
        for task in self._fetches.values():
            task.cancel()


def _failed(task: asyncio.Task[Unreadable]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
