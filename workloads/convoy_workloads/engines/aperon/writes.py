"""The way of a write from a request to the index, and the limits of a replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.own_metrics import OwnMetrics
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.writer import WriteRefused

ONE_DELETE = 10_000
"""Most ids of an operation that deletes what a filter finds."""


class Writes(Protocol):
    """Writes that are durable when they return."""

    async def upsert(self, rows: Upsert) -> int:
        """Insert or replace records: all or none. Return their number."""
        ...

    async def delete(self, ids: list[Id]) -> int:
        """Delete records. Return the number of those that were there."""
        ...

    async def delete_where(self, where: Mapping[str, Any]) -> int:
        """Delete the records that fulfil a filter. Return their number."""
        ...


def room_in(ensemble: Ensemble, params: Params) -> Callable[[Upsert], None]:
    """Return the check that records fit into the limits of a replica."""

    def check(rows: Upsert) -> None:
        facts = ensemble.facts() if params.max_records or params.memory_mib else []
        records = sum(one.records for one in facts)
        if params.max_records and records + len(rows.ids) > params.max_records:
            # Records that are replaced need no further room.
            there = sum(one is not None for one in ensemble.fetch(rows.ids))
            if records + len(rows.ids) - there > params.max_records:
                raise WriteRefused(
                    f"the index has {records} records, and max_records is {params.max_records}: delete "
                    "records, or raise max_records"
                )
        size = sum(sum(one.bytes.values()) for one in facts)
        if params.memory_mib and size + rows.vectors.nbytes > params.memory_mib << 20:
            raise WriteRefused(
                f"the index has {size} bytes, and memory_mib is {params.memory_mib}: delete some, or "
                "raise memory_mib"
            )

    return check


class Counted:
    """Writes that the metrics count."""

    def __init__(self, inner: Writes, metrics: OwnMetrics) -> None:
        self._inner, self._metrics = inner, metrics

    async def upsert(self, rows: Upsert) -> int:
        """Insert or replace records: all or none. Return their number."""
        found = await self._inner.upsert(rows)
        self._metrics.upserted(found)
        return found

    async def delete(self, ids: list[Id]) -> int:
        """Delete records. Return the number of those that were there."""
        found = await self._inner.delete(ids)
        self._metrics.deleted(found)
        return found

    async def delete_where(self, where: Mapping[str, Any]) -> int:
        """Delete the records that fulfil a filter. Return their number."""
        found = await self._inner.delete_where(where)
        self._metrics.deleted(found)
        return found
