"""The operations on an index, and their bytes in the log and between replicas.

0   length of the header, little endian
4   header, JSON: operation, ids, metadata, number of vectors, stamps
..  vectors, fp32, little endian
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

import numpy as np

from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.replication.operation import Stamp

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Insert records, or replace those with the same ids."""

    ids: list[Id]
    vectors: Floats
    """As they are stored; for cosine, of length 1."""
    records: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Delete the records with these ids."""

    ids: list[Id]


@dataclass(frozen=True, slots=True, eq=False)
class Replicated:
    """Operations of replicas. An id is either written or deleted."""

    upsert: Upsert
    delete: Delete
    stamps: list[tuple[Id, Stamp]] = field(default_factory=list)
    """The id and the stamp of each operation, also of one that a later one of the batch supersedes."""

    @property
    def ids(self) -> list[Id]:
        """Return the ids of all records that change."""
        return [*self.upsert.ids, *self.delete.ids]


Operation = Upsert | Delete | Replicated


def encode(operation: Operation) -> bytes:
    """Return an operation as bytes."""
    if isinstance(operation, Delete):
        return _with_header({"operation": "delete", "ids": operation.ids}, b"")
    upsert = operation.upsert if isinstance(operation, Replicated) else operation
    header: dict[str, object] = {
        "operation": "upsert",
        "ids": upsert.ids,
        "records": upsert.records,
        "dimension": upsert.vectors.shape[1],
    }
    if isinstance(operation, Replicated):
        header |= {"operation": "replicated", "deleted": operation.delete.ids, **_stamps(operation)}
    return _with_header(header, upsert.vectors.astype("<f4", copy=False).tobytes())


def _stamps(operation: Replicated) -> dict[str, object]:
    """Return the stamps as part of a header. Many of them have the same origin."""
    places = {one: at for at, one in enumerate(operation.ids)}
    origins: dict[bytes, int] = {}
    rows = [
        (places[id_], origins.setdefault(one.origin, len(origins)), one.clock, one.sequence)
        for id_, one in operation.stamps
    ]
    return {"origins": [one.hex() for one in origins], "stamps": rows}


def _with_header(header: dict[str, object], data: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + data


def decode(data: bytes) -> Operation:
    """Return the operation that `data` encodes. Raises ValueError for other bytes."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        if header["operation"] == "delete":
            return Delete(header["ids"])
        if header["operation"] not in ("upsert", "replicated"):
            raise ValueError(f"unknown operation {header['operation']!r}")
        count, dimension = len(header["ids"]), header["dimension"]
        vectors = np.frombuffer(data, "<f4", offset=_LENGTH.size + length)
        upsert = Upsert(
            header["ids"], vectors.reshape(count, dimension).astype(np.float32), header["records"]
        )
        if header["operation"] == "upsert":
            return upsert
        delete = Delete(header["deleted"])
        ids, origins = [*upsert.ids, *delete.ids], [bytes.fromhex(one) for one in header["origins"]]
        stamps = [
            (ids[place], Stamp(clock, origins[origin], sequence))
            for place, origin, clock, sequence in header["stamps"]
        ]
        return Replicated(upsert, delete, stamps)
    except (struct.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not an operation: {error}") from error
