"""A consistent view of an index. Writes make another one, so searches need no lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import columns as metadata
from convoy_workloads.engines.aperon.columns import Column, Record
from convoy_workloads.engines.aperon.filters import Filter
from convoy_workloads.engines.aperon.ids import Id, ranks
from convoy_workloads.engines.aperon.segment import Bits, Rows, Segment
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.kernels.hntl_arrays import Floats

Array = npt.NDArray[Any]


class Source(Protocol):
    """A place of rows."""

    def ids_at(self, rows: Array) -> list[Id]:
        """Return the ids of rows."""

    def records_at(self, rows: Array) -> list[Record]:
        """Return the metadata of rows."""

    def vectors_at(self, rows: Array) -> Floats:
        """Return the vectors of rows."""

    def find_live(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the rows of ids, -1 for ids that are not here or deleted."""


@dataclass(frozen=True, eq=False)
class SegmentView:
    """A segment and the rows of it that are not deleted."""

    segment: Segment
    alive: Bits
    live: int
    """Number of rows that are not deleted."""
    tombstones: str
    """Name of the file with `alive`; empty if the rows have changed since the file was written, or if no row
    is deleted.
    """

    @cached_property
    def norms(self) -> Floats:
        """Return the squared lengths of the centres of grains with a row."""
        return self.segment.norms_with(self.alive)

    def find_live(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the rows of ids, -1 for ids that are not here or deleted."""
        rows = self.segment.ids.find(ids)
        there = np.flatnonzero(rows >= 0)
        if len(there):
            slots = self.segment.slots(rows[there])
            dead = (self.alive[slots // 32] >> (slots % 32).astype(np.uint32)) & 1 == 0
            rows[there[dead]] = -1
        return rows

    def without(self, rows: Array) -> SegmentView:
        """Return the view after live rows are deleted."""
        if not len(rows):
            return self
        alive = self.alive.copy()
        slots = self.segment.slots(rows)
        np.bitwise_and.at(alive, slots // 32, ~(np.uint32(1) << (slots % 32).astype(np.uint32)))
        return replace(self, alive=alive, live=self.live - len(rows), tombstones="")

    def ids_at(self, rows: Array) -> list[Id]:
        """Return the ids of rows."""
        return self.segment.ids.at(rows)

    def records_at(self, rows: Array) -> list[Record]:
        """Return the metadata of rows."""
        return metadata.records_at(self.segment.columns, rows)

    def vectors_at(self, rows: Array) -> Floats:
        """Return the vectors of rows."""
        return self.segment.arrays.vectors[rows]

    def filtered(self, chosen: Filter) -> Bits:
        """Return the bits of live rows that fulfil a filter."""
        return self.alive & self.segment.filter_bits(chosen)


def view_of(segment: Segment) -> SegmentView:
    """Return the view of a segment without deleted rows."""
    return SegmentView(segment, segment.every, segment.rows, "")


@dataclass(frozen=True, eq=False)
class MemoryView:
    """Rows in memory. The lists and the buffer may grow; only the first `len(alive)` entries count."""

    ids: list[Id]
    records: list[Record]
    buffer: Floats
    alive: npt.NDArray[np.bool_]
    settings: IndexSettings

    @property
    def vectors(self) -> Floats:
        """Return the vectors [rows, dimension]."""
        return self.buffer[: len(self.alive)]

    @cached_property
    def live_rows(self) -> npt.NDArray[np.int64]:
        """Return the rows that are not deleted."""
        return np.flatnonzero(self.alive)

    @cached_property
    def order(self) -> npt.NDArray[np.uint32]:
        """Return the rank of each row's id."""
        return ranks(self.ids[: len(self.alive)])

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Return the metadata as columns."""
        return metadata.columns_of(self.records[: len(self.alive)], self.settings.fields)

    def find_live(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the rows of ids, -1 for ids that are not here or deleted."""
        rows = self._row_of
        return np.array([rows.get(one, -1) for one in ids], np.int64)

    def without(self, ids: Sequence[Id]) -> MemoryView:
        """Return the view after the rows of ids are deleted."""
        rows = self.find_live(ids)
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        alive = self.alive.copy()
        alive[rows] = False
        return replace(self, alive=alive)

    @cached_property
    def _row_of(self) -> dict[Id, int]:
        return {self.ids[row]: int(row) for row in self.live_rows}

    def ids_at(self, rows: Array) -> list[Id]:
        """Return the ids of rows."""
        return [self.ids[row] for row in rows]

    def records_at(self, rows: Array) -> list[Record]:
        """Return the metadata of rows."""
        return [dict(self.records[row]) for row in rows]

    def vectors_at(self, rows: Array) -> Floats:
        """Return the vectors of rows."""
        return self.buffer[rows]

    def filtered(self, chosen: Filter) -> npt.NDArray[np.int64]:
        """Return the live rows that fulfil a filter."""
        return np.flatnonzero(self.alive & chosen.mask(self.columns, len(self.alive)))


class MemoryTable:
    """The newest rows of an index. The index's lock guards it."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._rows: dict[Id, int] = {}
        self.view = MemoryView(
            [], [], np.empty((64, settings.dimension), np.float32), np.empty(0, np.bool_), settings
        )

    def write(self, removed: Sequence[Id], added: Rows | None) -> None:
        """Delete the rows of ids that are here, then add rows."""
        view = self.view
        count, more = len(view.alive), len(added.ids) if added else 0
        alive = np.ones(count + more, np.bool_)
        alive[:count] = view.alive
        for one in removed:
            if (row := self._rows.pop(one, None)) is not None:
                alive[row] = False
        buffer = view.buffer
        if added:
            if count + more > len(buffer):
                buffer = np.empty((2 * (count + more), buffer.shape[1]), np.float32)
                buffer[:count] = view.vectors
            buffer[count : count + more] = added.vectors
            view.ids.extend(added.ids)
            view.records.extend(added.records)
            self._rows.update((one, count + at) for at, one in enumerate(added.ids))
        self.view = replace(view, buffer=buffer, alive=alive)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The records and rows that a search sees."""

    segments: tuple[SegmentView, ...]
    memory: tuple[MemoryView, ...]
    """Rows that are becoming a segment, and last the newest rows."""
    sequence: int
    """Number of the last applied operation."""

    @property
    def sources(self) -> tuple[SegmentView | MemoryView, ...]:
        """Return all places of rows. An id lives in at most one."""
        return (*self.segments, *self.memory)

    @property
    def live(self) -> int:
        """Return the number of records."""
        return sum(one.live for one in self.segments) + sum(len(one.live_rows) for one in self.memory)
