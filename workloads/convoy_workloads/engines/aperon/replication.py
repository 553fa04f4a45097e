"""The replication of one replica: its replicator, from before the index is open until the end.

A replica with state of its own opens it, and merges what its peers have. One without state takes over the
whole state of a peer, and starts from spec.model only if no peer has data.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.routing import BaseRoute

from convoy_crds import terms
from convoy_workloads.engines.aperon.log import log_files, read_logs
from convoy_workloads.engines.aperon.operations import Replicated, decode
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.replica_peers import Exchanged, IndexReplicator, PacedTransport
from convoy_workloads.engines.aperon.replica_records import operations_of
from convoy_workloads.engines.aperon.replica_store import Index, ReplicaStore
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.errors import not_ready
from convoy_workloads.serving.extensions import Guard
from convoy_workloads.serving.renewing import RENEW_SECONDS
from convoy_workloads.serving.replication import http
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.messages import Busy, Confirm, Message, Pull, Push, Sender, Supply
from convoy_workloads.serving.replication.operation import ORIGIN_BYTES
from convoy_workloads.serving.replication.replicator import Entry
from convoy_workloads.serving.replication.settings import NotReady, Settings

SEED = b"convoy-aperon-00"
"""Origin of one operation that stands for all records which no operation has made: those of spec.model, or of
a folder. Nobody retains it, so a replica without data takes over the whole state of one that has it.
"""
START_SECONDS = 30.0
"""Longest time until the event loop has done its part of the start."""


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """The state of the replication."""

    peers: int
    caught_up: bool
    unacknowledged: int
    retained_bytes: int
    lag: int
    """Operations that the slowest peer lacks."""
    sent: int
    applied: int
    states: int


class Replication:
    """The replication of one replica. Except where it is said, the event loop calls all methods."""

    def __init__(self, params: Params, environment: Mapping[str, str]) -> None:
        """`environment`: the variables of the process."""
        default = Settings()
        self.settings = replace(
            default,
            copies=params.copies,
            # A request of the largest size must fit.
            waiting_operations=max(default.waiting_operations, 2 * params.max_rows),
            waiting_bytes=max(default.waiting_bytes, 2 * params.max_body_bytes),
        )
        file = environment.get(terms.ENV_AUTH_TOKEN_FILE)
        self._http = http.HttpTransport(TokenFile(Path(file)) if file else None)
        # Outside of a job nobody reports peers.
        self.durable = params.fsync != "never"
        """True if the files of the index shall survive a power failure."""
        alone = not environment.get(terms.ENV_SOCKET)
        self._addresses: tuple[str, Sequence[str]] | None = ("", ()) if alone else None
        self._process = random.randbytes(ORIGIN_BYTES)  # noqa: S311 - no secret
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = asyncio.Event()
        self._failed: BaseException | None = None
        self._replicator: IndexReplicator | None = None
        self._store: ReplicaStore | None = None
        self._exchanged = Exchanged()

    def routes(self, guard: Guard) -> Sequence[BaseRoute]:
        """Return the routes for peers."""
        self._loop = asyncio.get_running_loop()
        return http.routes(self, guard)

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        """Set the addresses of the peers."""
        self._addresses = own, others
        if self._replicator is not None:
            self._replicator.set_peers(own, others)

    async def run(self) -> None:
        """Exchange operations with the peers, as soon as the state of this replica is read."""
        await self._began.wait()
        assert self._replicator is not None  # noqa: S101 - `start` has set it
        if self._addresses is not None:
            self._replicator.set_peers(*self._addresses)
        try:
            async with self._http:
                await self._replicator.run()
        except Exception as error:
            self._failed = error
            raise

    async def drain(self) -> None:
        """Wait until the peers have everything that this replica has."""
        if self._replicator is not None:
            await self._replicator.drain()

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append operations. Raises NotAppended if they were not acknowledged."""
        if self._replicator is None:
            raise NotReady("this replica is starting: send the request again")
        await self._replicator.append(entries)

    # The responses to peers (`http.Responder`).

    def on_push(self, message: Push) -> Confirm | Busy:
        """Respond to a push. While this replica reads its state, it says that nobody should wait for its
        copies.
        """
        if self._replicator is None:
            return Confirm(Sender(self._process, joins=True))
        return self._replicator.on_push(message)

    def on_pull(self, message: Pull) -> Supply:
        """Respond to a pull."""
        if self._replicator is None:
            raise not_ready("this replica reads its state")
        return self._replicator.on_pull(message)

    def on_state(self, message: Pull) -> AsyncIterator[Message]:
        """Respond to the request for a state."""
        if self._replicator is None:
            raise not_ready("this replica reads its state")
        return self._replicator.on_state(message)

    # The compute thread calls the following methods.

    def recover(self, index: Index, folder: Path) -> OperationLog:
        """Return what this replica knows from before: its file, and the log of its index."""
        log = index.knowledge.read(self.settings.retained_bytes)
        found = operations_of(_logged(folder))
        log.merge(found)
        # An operation whose predecessor lost to another one is not known yet, but its stamp counts.
        log.merge_winners(found)
        if not log.vector and _records(index):
            log.adopt({SEED: 1})
        return log

    def start(self, store: ReplicaStore, log: OperationLog, renew: Callable[[], None]) -> None:
        """Exchange operations, and wait until this replica has caught up with its peers."""
        self._store = store
        transport = PacedTransport(self._http, store, self._exchanged)
        self._replicator = replicator = IndexReplicator(
            store, transport, self.settings, recovered=log, totals=self._exchanged
        )
        self._running.call_soon_threadsafe(self._began.set)
        while not replicator.caught_up.wait(RENEW_SECONDS):
            self.check()
            renew()

    def attach(self, index: Index) -> None:
        """Let the store use the index of a replica that had none, and keep what it knows."""
        store, done = self._used, threading.Event()
        seeded = store.restored is None and _records(index) > 0

        def attach() -> None:
            self.adopt(store, index, seeded=seeded)
            done.set()

        self._running.call_soon_threadsafe(attach)
        if not done.wait(START_SECONDS):
            raise RuntimeError("the event loop does not respond")
        self.persist()

    @staticmethod
    def adopt(store: ReplicaStore, index: Index, *, seeded: bool) -> None:
        """Let a store use an index. `seeded`: it has records that no operation has made. The event loop calls
        this.
        """
        if seeded:
            store.known.adopt({SEED: 1})
        store.attach(index)

    def check(self) -> None:
        """Raise the error that has ended the exchange."""
        if self._failed is not None:
            raise RuntimeError(f"the replication failed: {self._failed}") from self._failed

    def persist(self) -> None:
        """Write what is known to its file. Any thread but those of the event loop and the writer may call
        this.
        """
        self._used.persist(self._running)

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None  # noqa: S101 - the front makes the routes first
        return self._loop

    @property
    def _used(self) -> ReplicaStore:
        assert self._store is not None  # noqa: S101 - `start` has set it
        return self._store

    def facts(self) -> ReplicationFacts | None:
        """Return the state of the replication; None before it has begun."""
        found = self._replicator
        if found is None or self._store is None:
            return None
        own, peers = found.log.vector, [one for one in found.peers if one.process]
        lags = [_lacking(own, found.contacts.vector(one.process)) for one in peers]
        return ReplicationFacts(
            len(found.peers),
            found.caught_up.is_set(),
            found.unacknowledged,
            found.log.retained_bytes,
            max(lags, default=0),
            self._exchanged.sent,
            self._store.applied,
            self._exchanged.states,
        )


def _lacking(own: Mapping[bytes, int], theirs: Mapping[bytes, int]) -> int:
    return sum(max(0, last - theirs.get(origin, 0)) for origin, last in own.items())


def _records(index: Index) -> int:
    return sum(one.records for one in index.ensemble.facts())


def _logged(folder: Path) -> Sequence[Replicated]:
    """Return the operations of replicas in the log of an index."""
    files = log_files(folder)
    if not files:
        return []
    found = (decode(data) for _, data in read_logs(folder, files[0][0] - 1))
    return [one for one in found if isinstance(one, Replicated)]
