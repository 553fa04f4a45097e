"""The shards of a replica. Searches go to all of them, and writes to the owners of the ids.

The compute thread searches and the writer writes, at the same time. An exchange with another rank holds that
rank's lock, so the two do not mix.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from convoy_workloads.engines.aperon.commands import Hits, Query, Stored
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.operations import Operation
from convoy_workloads.engines.aperon.shard import Facts, Shard
from convoy_workloads.engines.aperon.sharding import merged, owner, split
from convoy_workloads.kernels.hntl_arrays import Floats

T = TypeVar("T")


class OtherShard(Protocol):
    """A shard of another rank. An exchange is `start` and then `finish`, both in `lock`. Errors of the
    connection are RuntimeErrors; they end the replica.
    """

    lock: threading.Lock

    def start(self, name: str, *arguments: Any) -> None:
        """Send a call of a method of the shard."""
        ...

    def finish(self) -> Any:
        """Return the result of the call."""
        ...

    def idle(self) -> None:
        """Show the rank that this one is alive."""
        ...

    def end(self) -> None:
        """Let the rank end."""
        ...


class Ensemble:
    """The shards of a replica, as rank 0 uses them."""

    def __init__(self, own: Shard, others: Sequence[OtherShard] = ()) -> None:
        """`others`: the shards of the ranks 1, 2 and so on."""
        self.own = own
        self._others = others

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return 1 + len(self._others)

    @property
    def dimension(self) -> int:
        """Return the number of components of a vector."""
        return self.own.index.settings.dimension

    def query_bytes(self, query: Query) -> int:
        """Return about how many bytes of a rank's index one vector of a search reads. Ranks are alike."""
        return self.own.query_bytes(query)

    def search(self, queries: Floats, query: Query) -> Hits:
        """Return the nearest records of each query."""
        found = self._all("search", lambda: self.own.search(queries, query), queries, query)
        return merged(found, query.results)

    def fetch(self, ids: Sequence[Id]) -> list[Stored | None]:
        """Return the records with these ids, None for those that are not there."""
        rows: dict[int, list[int]] = {}
        for at, one in enumerate(ids):
            rows.setdefault(owner(one, self.world), []).append(at)
        parts = {rank: ([ids[at] for at in own],) for rank, own in rows.items()}
        found: list[Stored | None] = [None] * len(ids)
        for rank, stored in self._some("fetch", self.own.fetch, parts).items():
            for at, record in zip(rows[rank], stored, strict=True):
                found[at] = record
        return found

    def present(self, ids: Sequence[Id]) -> int:
        """Return the number of records with these ids."""
        rows: dict[int, list[Id]] = {}
        for one in ids:
            rows.setdefault(owner(one, self.world), []).append(one)
        parts = {rank: (own,) for rank, own in rows.items()}
        return sum(self._some("present", self.own.present, parts).values())

    def chosen(self, where: Mapping[str, Any]) -> list[Id]:
        """Return the ids of the records that fulfil a filter."""
        parts = self._all("chosen", lambda: self.own.chosen(where), where)
        return [one for part in parts for one in part]

    def count(self, where: Mapping[str, Any] | None) -> int:
        """Return the number of records that fulfil a filter."""
        return sum(self._all("count", lambda: self.own.count(where), where))

    def write(self, operation: Operation) -> int:
        """Log and apply an operation. Return the number of changed records."""
        parts = {rank: (part,) for rank, part in split(operation, self.world).items()}
        return sum(self._some("write", self.own.write, parts).values())

    def sync(self) -> None:
        """Wait until all operations are on the disks."""
        self._all("sync", self.own.sync)

    def facts(self) -> list[Facts]:
        """Return the facts about each shard."""
        return self._all("facts", self.own.facts)

    def open_export(self) -> list[list[int]]:
        """Open an export of each shard, all of the same time. Return their numbers and their records."""
        return self._all("open_export", self.own.exports.open)

    def next_export(self, rank: int, number: int) -> bytes:
        """Return the next records of a rank's export; nothing after the last ones."""
        return self._some("next_export", self.own.exports.next, {rank: (number,)})[rank]

    def close_export(self, numbers: Sequence[int]) -> None:
        """End an export."""
        parts = {rank: (one,) for rank, one in enumerate(numbers)}
        self._some("close_export", self.own.exports.close, parts)

    def idle(self) -> None:
        """Show the other ranks that this one is alive."""
        for one in self._others:
            with one.lock:
                one.idle()

    def end(self) -> None:
        """Let the other ranks end. A rank that is lost already is ignored."""
        for one in self._others:
            with one.lock, contextlib.suppress(RuntimeError):
                one.end()

    def _all(self, name: str, own: Callable[[], T], *arguments: Any) -> list[T]:
        """Call a method on all shards, the others at the same time."""
        with self._locked(self._others):
            for one in self._others:
                one.start(name, *arguments)
            return _gathered([own, *(one.finish for one in self._others)])

    def _some(
        self, name: str, own: Callable[..., T], arguments: Mapping[int, tuple[Any, ...]]
    ) -> dict[int, T]:
        """Call a method on the shards that have arguments."""
        others = {rank: self._others[rank - 1] for rank in sorted(arguments) if rank}
        with self._locked(others.values()):
            for rank, one in others.items():
                one.start(name, *arguments[rank])
            ends: dict[int, Callable[[], T]] = {}
            if 0 in arguments:
                ends[0] = lambda: own(*arguments[0])
            ends |= {rank: one.finish for rank, one in others.items()}
            return dict(zip(ends, _gathered(list(ends.values())), strict=True))

    @staticmethod
    @contextlib.contextmanager
    def _locked(others: Iterable[OtherShard]) -> Any:
        with contextlib.ExitStack() as stack:
            for one in others:  # Always in the order of ranks, so two threads cannot wait for each other.
                stack.enter_context(one.lock)
            yield


def _gathered(ends: Sequence[Callable[[], T]]) -> list[T]:
    """Return the result of each call. All results are read before an InvalidInput is raised, because a result
    that is left would be taken for that of the next call.
    """
    found: list[T] = []
    error: InvalidInput | None = None
    for one in ends:
        try:
            found.append(one())
        except InvalidInput as wrong:
            error = error or wrong
    if error is not None:
        raise error
    return found
