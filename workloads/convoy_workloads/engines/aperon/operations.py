"""The operations on an index, and their bytes in the log and between replicas.

0   length of the header, little endian
4   header, JSON: operation, ids, metadata, number of vectors
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


Operation = Upsert | Delete


def encode(operation: Operation) -> bytes:
    """Return an operation as bytes."""
    if isinstance(operation, Delete):
        return _with_header({"operation": "delete", "ids": operation.ids}, b"")
    header: dict[str, object] = {
        "operation": "upsert",
        "ids": operation.ids,
        "records": operation.records,
        "dimension": operation.vectors.shape[1],
    }
    return _with_header(header, operation.vectors.astype("<f4", copy=False).tobytes())


def _with_header(header: dict[str, object], data: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + data


def decode(data: bytes) -> Operation:
    """Return the operation of its bytes. Raises ValueError."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        if header["operation"] == "delete":
            return Delete(header["ids"])
        if header["operation"] != "upsert":
            raise ValueError(f"unknown operation {header['operation']!r}")
        count, dimension = len(header["ids"]), header["dimension"]
        vectors = np.frombuffer(data, "<f4", offset=_LENGTH.size + length)
        return Upsert(header["ids"], vectors.reshape(count, dimension).astype(np.float32), header["records"])
    except (struct.error, KeyError, TypeError) as error:
        raise ValueError(f"not an operation: {error}") from error
