"""The ids of records: strings or whole numbers, checked, stored as columns, and found by a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.settings import IdType

Id = str | int
LONGEST = 512
"""Most bytes of a string id."""
Array = npt.NDArray[Any]


def checked_ids(name: str, ids: Any, id_type: IdType) -> list[Id]:
    """Return the ids of a batch. Raises InvalidInput, also for an id that comes twice.

    A second record with the same id in one batch is nearly always a mistake, and the order of a batch should
    not matter. Chroma refuses such batches, too (DuplicateIDError, chroma-core/chroma issue 704).
    """
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | np.ndarray):
        raise InvalidInput(name, "not a list of ids")
    found = [_checked(f"{name}[{at}]", one, id_type) for at, one in enumerate(ids)]
    if len(set(found)) != len(found):
        seen: dict[Id, int] = {}
        for at, one in enumerate(found):
            if one in seen:
                raise InvalidInput(
                    f"{name}[{at}]", f"{shown(one)} is also {name}[{seen[one]}]: send each id once"
                )
            seen[one] = at
    return found


def _checked(name: str, one: Any, id_type: IdType) -> Id:
    if id_type == "uint64":
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= int(one) < 2**64:
            raise InvalidInput(
                name, f"{shown(one)} is no whole number from 0 to 2^64 - 1, as ids of this index are"
            )
        return int(one)
    if not isinstance(one, str):
        raise InvalidInput(name, f"{shown(one)} is no string, as ids of this index are")
    try:
        size = len(one.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(name, "not valid Unicode") from error
    if not 1 <= size <= LONGEST:
        raise InvalidInput(name, f"{size} bytes are not between 1 and {LONGEST}")
    return one


def sort_value(one: Id) -> bytes | int:
    """Return a value with the order of ids: numbers by size, strings by their UTF-8 bytes."""
    return one.encode() if isinstance(one, str) else one


def _keys(ids: Sequence[Id]) -> npt.NDArray[np.uint64]:
    """Return a number for each id. Different strings may have the same number."""
    numbers = [
        one
        if isinstance(one, int)
        else int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8).digest(), "big")
        for one in ids
    ]
    return np.array(numbers, np.uint64)


class IdColumn:
    """The ids of a segment's rows."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """`arrays`: those of `arrays_of`, perhaps mapped from a file."""
        self._numbers = arrays.get("ids")
        self._text = arrays.get("id_text", np.empty(0, np.uint8))
        self._ends = arrays.get("id_ends", np.empty(0, np.uint64))
        self._keys = arrays["id_keys"]
        self._rows = arrays["id_rows"]

    @staticmethod
    def arrays_of(ids: Sequence[Id]) -> dict[str, Array]:
        """Return the arrays that a file of these ids holds."""
        keys = _keys(ids)
        rows = np.argsort(keys, kind="stable").astype(np.uint32)
        found: dict[str, Array] = {"id_keys": keys[rows], "id_rows": rows}
        if ids and isinstance(ids[0], str):
            parts = [str(one).encode() for one in ids]
            found["id_text"] = np.frombuffer(b"".join(parts), np.uint8)
            found["id_ends"] = np.cumsum([len(part) for part in parts], dtype=np.uint64)
        else:
            found["ids"] = keys
        return found

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        own = (self._numbers, self._text, self._ends, self._keys, self._rows)
        return sum(one.nbytes for one in own if one is not None)

    def at(self, rows: Array) -> list[Id]:
        """Return the ids of rows."""
        if self._numbers is not None:
            numbers: list[Id] = self._numbers[rows].tolist()
            return numbers
        text, ends = self._text, self._ends
        lasts = ends[rows]
        firsts = np.where(rows > 0, ends[np.maximum(rows, 1) - 1], 0)
        return [
            text[int(first) : int(last)].tobytes().decode() for first, last in zip(firsts, lasts, strict=True)
        ]

    def all(self) -> list[Id]:
        """Return the ids of all rows."""
        return self.at(np.arange(len(self)))

    def find(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the rows of ids, -1 for those that are not here."""
        found = np.full(len(ids), -1, np.int64)
        keys = _keys(ids)
        firsts = np.searchsorted(self._keys, keys, side="left")
        lasts = np.searchsorted(self._keys, keys, side="right")
        for at in np.flatnonzero(lasts > firsts).tolist():
            rows = self._rows[firsts[at] : lasts[at]].astype(np.int64)
            if self._numbers is not None:
                found[at] = rows[0]
                continue
            for row, other in zip(rows, self.at(rows), strict=True):
                if other == ids[at]:
                    found[at] = row
        return found


def ranks(ids: Sequence[Id]) -> npt.NDArray[np.uint32]:
    """Return the rank of each id among all."""
    order = sorted(range(len(ids)), key=lambda at: sort_value(ids[at]))
    found = np.empty(len(ids), np.uint32)
    found[order] = np.arange(len(ids), dtype=np.uint32)
    return found
