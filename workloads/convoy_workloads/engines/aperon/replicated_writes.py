"""The ways of writes to an index with replicas, and to one that refuses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.replica_records import key_of, payload_of
from convoy_workloads.engines.aperon.writer import Writer, WriteRefused
from convoy_workloads.engines.aperon.writes import ONE_DELETE
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import RETRY_SECONDS
from convoy_workloads.serving.replication.operation import MAX_PAYLOAD
from convoy_workloads.serving.replication.replicator import Entry
from convoy_workloads.serving.replication.settings import LogFailed, NotAppended, NotReady, Overloaded

Append = Callable[[Sequence[Entry]], Awaitable[None]]
T = TypeVar("T")
FULL_SECONDS = 1.0
"""Seconds for which writes are refused after the disk had no space. Each that is tried costs an origin."""


class ReplicatedWrites:
    """Writes that are acknowledged when they are in the log of this replica and in the memory of peers."""

    def __init__(
        self, ensemble: Ensemble, writer: Writer, room: Callable[[Upsert], None] | None, append: Append
    ) -> None:
        """`room` raises WriteRefused if records do not fit; None if there is no limit. `append`: that of the
        replicator.
        """
        self._ensemble, self._writer, self._room, self._append = ensemble, writer, room, append
        self._full = (-FULL_SECONDS, "")
        """Time and message of the last write for which the disk had no space."""
        self._deleting: set[Id] = set()
        """Ids that are being deleted. Each is counted once."""

    async def upsert(self, rows: Upsert) -> int:
        """Insert or replace records. Return their number."""
        room = self._room
        if room is not None:
            await self._done(lambda: room(rows))
        entries: list[Entry] = []
        for at, id_ in enumerate(rows.ids):
            payload = payload_of(rows.vectors[at], rows.records[at])
            if len(payload) > MAX_PAYLOAD:
                raise InvalidInput(
                    f"metadata[{at}]",
                    f"the record has {len(payload)} bytes: at most {MAX_PAYLOAD} are allowed",
                )
            entries.append((key_of(id_), payload))
        await self._appended(entries)
        return len(entries)

    async def delete(self, ids: list[Id]) -> int:
        """Delete records. Return the number of those that were there."""
        # A peer may have a record that has not arrived here, so all ids are deleted.
        counted = [one for one in ids if one not in self._deleting]
        self._deleting.update(counted)
        try:
            count = await self._done(lambda: self._ensemble.present(counted))
            await self._appended([(key_of(one), None) for one in ids])
        finally:
            self._deleting.difference_update(counted)
        return count

    async def delete_where(self, where: Mapping[str, Any]) -> int:
        """Delete the records of this replica that fulfil a filter. Return their number."""
        ids = await self._done(lambda: self._ensemble.chosen(where))
        return sum([await self.delete(part) for part in _parts(ids)])

    async def _done(self, function: Callable[[], T]) -> T:
        """Call a function in the writer's thread."""
        found: T = await asyncio.shield(self._writer.submit(function))
        return found

    async def _appended(self, entries: Sequence[Entry]) -> None:
        at, problem = self._full
        if time.monotonic() < at + FULL_SECONDS:
            raise WriteRefused(problem)
        try:
            await self._append(entries)
        except NotAppended as error:
            if isinstance(error.__cause__, WriteRefused):
                self._full = time.monotonic(), str(error.__cause__)
                raise WriteRefused(str(error.__cause__)) from error
            raise _refusal(error) from error


class NoWrites:
    """The writes of an index that is read-only: none."""

    async def upsert(self, rows: Upsert) -> int:
        """Refuse records."""
        _refuse()

    async def delete(self, ids: list[Id]) -> int:
        """Refuse to delete records."""
        _refuse()

    async def delete_where(self, where: Mapping[str, Any]) -> int:
        """Refuse to delete records."""
        _refuse()


def _refuse() -> NoReturn:
    raise RequestError(
        403,
        "this index accepts no writes, because params.read_only is true: it serves the snapshot in "
        "spec.model. Make another snapshot, or set read_only to false",
        "read_only",
        "read_only",
    )


def _refusal(error: NotAppended) -> RequestError:
    """Return the error for a write that is not acknowledged."""
    if isinstance(error, Overloaded):
        return RequestError(429, str(error), code="queue_full", retry=RETRY_SECONDS)
    code = "not_ready" if isinstance(error, NotReady) else "not_replicated"
    if isinstance(error, LogFailed):
        code = "log_failed"
    return RequestError(503, str(error), code=code, retry=RETRY_SECONDS)


def _parts(ids: list[Id]) -> Iterable[list[Id]]:
    return (ids[at : at + ONE_DELETE] for at in range(0, len(ids), ONE_DELETE))
