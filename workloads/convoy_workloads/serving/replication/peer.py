"""The exchange with one peer: this replica pushes its own operations, and pulls those that it lacks."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Protocol

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.replication.messages import Confirm, Pull, Push, Supply
from convoy_workloads.serving.replication.operation import Vector
from convoy_workloads.serving.replication.settings import Settings
from convoy_workloads.serving.replication.transport import Transport, Unreachable


class Core(Protocol):
    """The part of the replicator that a peer uses."""

    settings: Settings
    transport: Transport
    random: random.Random

    def next_push(self, peer: Peer) -> Push | None:
        """Return the next operations for the peer; None if it lacks none that can be pushed."""
        ...

    def confirmed(self, peer: Peer, message: Confirm) -> None:
        """Record the response to a push."""
        ...

    def next_pull(self) -> Pull:
        """Return a request for the operations that this replica lacks."""
        ...

    def supplied(self, peer: Peer, message: Supply) -> None:
        """Add the operations of a response."""
        ...

    def covers(self, vector: Vector) -> bool:
        """Return True if this replica has all operations of a version vector."""
        ...

    async def fetch_state(self, peer: Peer, target: Vector) -> None:
        """Take over the state of the peer, unless this replica has all operations of the version vector.
        Raises Unreachable if the peer does not answer, is busy or answers with an error.
        """
        ...

    def synced(self) -> None:
        """Record that a peer has become `synced` or `settled`."""
        ...


class Pauses:
    """The pauses after failed requests to one peer."""

    def __init__(self, first: float, most: float, source: random.Random) -> None:
        self._first, self._most, self._random = first, most, source
        self._failures = 0

    async def wait(self) -> None:
        """Wait after a failure. The pause is random, so that replicas do not return all at once."""
        pause = min(self._most, self._first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Record a success."""
        self._failures = 0


class Peer:
    """The exchange with one peer. A peer that is slow or away holds no other one."""

    def __init__(self, address: str, core: Core) -> None:
        self.address = address
        self.process = b""
        """Id of the peer's process; empty before its first response."""
        self.synced = False
        """True if this replica has everything that the peer had at the first contact."""
        self.settled = False
        """True if this replica has everything that the peer had when this replica counted as a copy first."""
        self.responded_at = -math.inf
        """Time of its last response."""
        self._core = core
        self._wake = asyncio.Event()
        self._reported = False

    def wake(self) -> None:
        """Push what is there to push."""
        self._wake.set()

    async def run(self) -> None:
        """Exchange operations until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._push())
            group.create_task(self._pull())

    async def _push(self) -> None:
        core = self._core
        pauses = Pauses(*core.settings.pauses, core.random)
        while True:
            self._wake.clear()
            while (message := core.next_push(self)) is not None:
                before = len(message.operations)
                try:
                    core.confirmed(self, await core.transport.push(self.address, message))
                except Unreachable as error:
                    self._report(error)
                    await pauses.wait()
                    continue
                again = core.next_push(self)
                if before and again is not None and again.operations[:1] == message.operations[:1]:
                    await pauses.wait()  # The peer has not accepted the first one.
                else:
                    pauses.reset()
            await self._wake.wait()

    async def _pull(self) -> None:
        core = self._core
        pauses = Pauses(*core.settings.pauses, core.random)
        target: Vector | None = None
        last: Vector | None = None
        while True:
            try:
                request = core.next_pull()
                found = await core.transport.pull(self.address, request)
                self.responded_at = asyncio.get_running_loop().time()
                core.supplied(self, found)
                target = found.vector if target is None else target
                if not request.sender.joins and last is None:
                    # From this request on, the peer acknowledges nothing without a copy.
                    last = found.vector
                if found.trimmed:
                    await core.fetch_state(self, found.vector)
                    self.responded_at = asyncio.get_running_loop().time()
            except Unreachable as error:
                self._report(error)
                await pauses.wait()
                continue
            if not self.synced and core.covers(target):
                self.synced = True
                core.synced()
            if not self.settled and last is not None and core.covers(last):
                self.settled = True
                core.synced()
            if core.covers(found.vector):
                pauses.reset()
                self._reported = False
                await asyncio.sleep(core.settings.sync_seconds * core.random.uniform(0.75, 1.25))
            elif core.next_pull().vector == request.vector:
                await pauses.wait()  # Its operations wait for others, or for room.

    def _report(self, error: Unreachable) -> None:
        """Write a line about the first failure of a series."""
        if not self._reported:
            self._reported = True
            log_line(f"replica {self.address} is not reachable: {error}")
