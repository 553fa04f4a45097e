"""Records as the operations that replicas exchange. The key is the id, and the payload is the record:

0   length of the metadata, little endian
4   metadata, JSON
..  vector, fp32, little endian
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import orjson

from convoy_workloads.engines.aperon import spaces
from convoy_workloads.engines.aperon.columns import Record, checked_records
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.ids import Id, checked_ids
from convoy_workloads.engines.aperon.operations import Delete, Replicated, Upsert
from convoy_workloads.engines.aperon.settings import IdType, IndexSettings
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.replication.operation import Operation

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")


def key_of(id_: Id) -> bytes:
    """Return the key of a record."""
    return id_.encode() if isinstance(id_, str) else _NUMBER.pack(id_)


def id_of(key: bytes, id_type: IdType) -> Id:
    """Return the id of a key. Raises InvalidInput if the key has another form."""
    try:
        return key.decode() if id_type == "string" else int(_NUMBER.unpack(key)[0])
    except (UnicodeDecodeError, struct.error) as error:
        raise InvalidInput("key", f"no id of the type {id_type}") from error


def payload_of(vector: Floats, record: Record) -> bytes:
    """Return the payload of a record, whose vector is as it is stored."""
    text = orjson.dumps(record)
    return b"".join((_LENGTH.pack(len(text)), text, vector.astype("<f4", copy=False).tobytes()))


def _read(payload: bytes, settings: IndexSettings) -> tuple[Floats, Record]:
    try:
        (length,) = _LENGTH.unpack_from(payload)
        end = _LENGTH.size + length
        record = orjson.loads(payload[_LENGTH.size : end])
        vector = np.frombuffer(payload, "<f4", offset=end)
    except (struct.error, ValueError) as error:
        raise InvalidInput("payload", f"no record: {error}") from error
    if len(vector) != settings.dimension:
        raise InvalidInput(
            "payload", f"a vector of dimension {len(vector)}, and the index has {settings.dimension}"
        )
    return vector, record


def batch(operations: Sequence[Operation], settings: IndexSettings) -> Replicated:
    """Return one operation with the effect of these, in their order. Raises InvalidInput if a record does not
    fit the index.
    """
    last = {one.key: one.payload for one in operations}
    ids: list[Id] = []
    deleted: list[Id] = []
    rows: list[Floats] = []
    records: list[Record] = []
    names: dict[bytes, Id] = {}
    for key, payload in last.items():
        id_ = names[key] = id_of(key, settings.id_type)
        if payload is None:
            deleted.append(id_)
            continue
        vector, record = _read(payload, settings)
        ids.append(id_)
        rows.append(vector)
        records.append(record)
    vectors = np.array(rows, np.float32).reshape(len(ids), settings.dimension)
    stamps = [(names[one.key], one.stamp) for one in operations]
    return Replicated(Upsert(ids, vectors, records), Delete(deleted), stamps)


def check(operations: Sequence[Operation], settings: IndexSettings) -> None:
    """Raise InvalidInput if an operation of a peer does not fit the index."""
    found = batch(operations, settings)
    checked_ids("ids", found.ids, settings.id_type)
    # Vectors are checked as those of l2, which leaves them as they are.
    spaces.checked_vectors("vectors", found.upsert.vectors, settings.dimension, "l2")
    checked_records("metadata", found.upsert.records, len(found.upsert.ids), settings.fields)


def operations_of(batches: Iterable[Replicated]) -> list[Operation]:
    """Return the operations of logged batches, in the order of each origin.

    An operation that a later one of its batch supersedes has the payload of the later one.
    """
    found: list[Operation] = []
    for one in batches:
        payloads: dict[Id, bytes | None] = dict.fromkeys(one.delete.ids)
        for at, id_ in enumerate(one.upsert.ids):
            payloads[id_] = payload_of(one.upsert.vectors[at], one.upsert.records[at])
        found += [Operation(stamp, key_of(id_), payloads[id_]) for id_, stamp in one.stamps]
    return sorted(found, key=lambda one: (one.stamp.origin, one.stamp.sequence))
