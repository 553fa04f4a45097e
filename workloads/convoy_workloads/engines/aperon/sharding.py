"""Which rank of a replica holds an id, and the merge of the results of several ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from heapq import merge
from itertools import islice

import numpy as np

from convoy_workloads.engines.aperon.commands import Hits
from convoy_workloads.engines.aperon.ids import Id, sort_value
from convoy_workloads.engines.aperon.operations import Delete, Operation, Replicated, Upsert


def owner(one: Id, world: int) -> int:
    """Return the rank that holds an id. It is the same on every machine."""
    if world == 1:
        return 0
    data = one.encode() if isinstance(one, str) else one.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") % world


def split(operation: Operation, world: int) -> dict[int, Operation]:
    """Return the part of an operation for each rank that has one."""
    if world == 1:
        return {0: operation}
    if isinstance(operation, Replicated):
        upserts, deletes = split(operation.upsert, world), split(operation.delete, world)
        empty = Upsert([], operation.upsert.vectors[:0])
        return {
            rank: Replicated(upserts.get(rank, empty), deletes.get(rank, Delete([])))  # type: ignore[arg-type]
            for rank in sorted({*upserts, *deletes})
        }
    rows: dict[int, list[int]] = {}
    for at, one in enumerate(operation.ids):
        rows.setdefault(owner(one, world), []).append(at)
    return {rank: _part(operation, own) for rank, own in rows.items()}


def _part(operation: Upsert | Delete, rows: Sequence[int]) -> Operation:
    ids = [operation.ids[at] for at in rows]
    if isinstance(operation, Delete):
        return Delete(ids)
    return Upsert(ids, operation.vectors[list(rows)], [operation.records[at] for at in rows])


def merged(parts: Sequence[Hits], results: int) -> Hits:
    """Return the nearest records among those of several ranks."""
    if len(parts) == 1:
        return parts[0]
    chosen = [_nearest(parts, item, results) for item in range(len(parts[0].ids))]
    return Hits(
        [[parts[rank].ids[item][at] for rank, at in row] for item, row in enumerate(chosen)],
        [
            np.array([parts[rank].distances[item][at] for rank, at in row], np.float32)
            for item, row in enumerate(chosen)
        ],
        sum(one.scanned for one in parts),
        max(one.sequence for one in parts),
        None
        if any(one.records is None for one in parts)
        else [[(parts[rank].records or [])[item][at] for rank, at in row] for item, row in enumerate(chosen)],
        None
        if any(one.vectors is None for one in parts)
        else [
            np.stack([(parts[rank].vectors or [])[item][at] for rank, at in row])
            if row
            else (parts[0].vectors or [])[item][:0]
            for item, row in enumerate(chosen)
        ],
    )


def _nearest(parts: Sequence[Hits], item: int, results: int) -> list[tuple[int, int]]:
    """Return rank and position of the nearest records of a query. Equal distances are in the order of ids."""

    def keyed(rank: int, one: Hits) -> list[tuple[float, bytes | int, int, int]]:
        rows = zip(one.distances[item].tolist(), one.ids[item], strict=True)
        return [(distance, sort_value(id_), rank, at) for at, (distance, id_) in enumerate(rows)]

    lists = [keyed(rank, one) for rank, one in enumerate(parts)]
    return [(rank, at) for _, _, rank, at in islice(merge(*lists), results)]
