"""Searches a view of an index: each segment and the rows in memory, merged by distance and id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import spaces
from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.filters import Filter
from convoy_workloads.engines.aperon.ids import Id, sort_value
from convoy_workloads.engines.aperon.settings import IndexSettings, SearchSettings
from convoy_workloads.engines.aperon.state import MemoryView, SegmentView, Source, State
from convoy_workloads.kernels.hntl import Functions
from convoy_workloads.kernels.hntl_arrays import ExactRequest, Floats, Found, ScanRequest
from convoy_workloads.kernels.threads import ThreadPool

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search whose vectors and settings fit the index."""

    queries: Floats
    results: int
    settings: SearchSettings
    chosen: Filter | None = None
    exact: bool = False
    """Compare all rows that pass the filter."""
    exact_rows: int = 0
    """Rows that pass a filter up to which all of them are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of results."""

    sources: list[Source]
    owners: Array
    """[queries, results], positions in `sources`."""
    rows: Array
    """[queries, results]; -1 after the last result of a query."""

    def of(self, item: int) -> Iterator[tuple[Source, Array]]:
        """Yield the source and the row, an array of one, of each result of a query."""
        for owner, row in zip(self.owners[item], self.rows[item], strict=True):
            if row >= 0:
                yield self.sources[owner], np.array([row])


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The nearest records of each query, the nearest first. Equal distances are in the order of ids."""

    ids: list[list[Id]]
    distances: Floats
    """[queries, results]; infinite after the last result of a query."""
    scanned: npt.NDArray[np.int64]
    """Rows whose codes or vectors were compared, for each query."""
    sequence: int
    """Number of the last operation that the search saw."""
    places: Places

    def records(self) -> list[list[Record]]:
        """Return the metadata of the results."""
        places = range(len(self.ids))
        return [[source.records_at(row)[0] for source, row in self.places.of(item)] for item in places]


@dataclass(frozen=True, slots=True)
class Searcher:
    """The kernel's functions and threads, with the settings of an index."""

    functions: Functions
    pool: ThreadPool | None
    settings: IndexSettings

    def search(self, state: State, request: SearchRequest) -> SearchResult:
        """Return the nearest records."""
        parts: list[tuple[Source, Found]] = []
        for segment in state.segments:
            if (found := self._segment(segment, request)) is not None:
                parts.append((segment, found))
        for memory in state.memory:
            if (found := self._memory(memory, request)) is not None:
                parts.append((memory, found))
        return _merged(self.settings, state, request, parts)

    def _segment(self, view: SegmentView, request: SearchRequest) -> Found | None:
        segment = view.segment
        allowed, count, norms = view.alive, view.live, view.norms
        if request.chosen is not None:
            allowed = view.filtered(request.chosen)
            count = int(np.bitwise_count(allowed).sum())
        if not count:
            return None
        if request.exact or (request.chosen is not None and count <= request.exact_rows):
            arrays = segment.arrays
            rows = segment.rows_of(allowed)
            return self._exact(request, arrays.vectors, arrays.order, rows)
        probes = request.settings.nprobe
        if request.chosen is not None:
            # Scan as many rows that pass as a search without a filter scans, for a similar recall.
            norms = segment.norms_with(allowed)
            probes = -(-probes * view.live // count)
        scan = ScanRequest(
            request.queries,
            allowed,
            norms,
            min(probes, segment.arrays.grains),
            min(max(request.settings.candidates, request.results), segment.rows),
            request.results,
        )
        found = self.functions.scan(segment.arrays, scan, self.pool)
        return self._completed(view, scan, found, min(request.results, count))

    def _completed(self, view: SegmentView, scan: ScanRequest, found: Found, wanted: int) -> Found:
        """Search again, in twice as many grains, for the queries with fewer results than there are."""
        while scan.probes < view.segment.arrays.grains:
            # Missing results are at the end, so one column tells.
            short = np.flatnonzero(found.rows[:, wanted - 1] < 0)
            if not len(short):
                break
            scan = scan._replace(probes=2 * scan.probes)
            again = self.functions.scan(
                view.segment.arrays,
                scan._replace(queries=np.ascontiguousarray(scan.queries[short])),
                self.pool,
            )
            for name in Found._fields:
                getattr(found, name)[short] = getattr(again, name)
        return found

    def _memory(self, view: MemoryView, request: SearchRequest) -> Found | None:
        rows = view.live_rows if request.chosen is None else view.filtered(request.chosen)
        return self._exact(request, view.vectors, view.order, rows) if len(rows) else None

    def _exact(self, request: SearchRequest, vectors: Floats, order: Array, rows: Array) -> Found:
        metric = spaces.kernel_metric(self.settings.metric)
        exact = ExactRequest(request.queries, vectors, order, rows, metric, request.results)
        return self.functions.exact(exact, self.pool)


def _merged(
    settings: IndexSettings, state: State, request: SearchRequest, parts: list[tuple[Source, Found]]
) -> SearchResult:
    """Return the best of all parts."""
    items, wanted = len(request.queries), request.results
    if not parts:
        nothing = np.full((items, wanted), np.inf, np.float32)
        empty: list[list[Id]] = [[] for _ in range(items)]
        nowhere = Places([], np.zeros((items, 0), np.int64), np.zeros((items, 0), np.int64))
        return SearchResult(empty, nothing, np.zeros(items, np.int64), state.sequence, nowhere)
    scanned = np.sum([found.scanned for _, found in parts], axis=0)
    if len(parts) == 1:
        source, found = parts[0]
        filled = found.rows >= 0
        flat = source.ids_at(found.rows[filled])
        lasts = np.cumsum(filled.sum(axis=1)).tolist()
        ids = [flat[first:last] for first, last in zip([0, *lasts], lasts, strict=False)]
        places = Places([source], np.zeros(found.rows.shape, np.int64), found.rows)
        return SearchResult(
            ids, spaces.reported(settings.metric, found.distances), scanned, state.sequence, places
        )
    distances = np.concatenate([found.distances for _, found in parts], axis=1)
    rows = np.concatenate([found.rows for _, found in parts], axis=1)
    owners = np.repeat(np.arange(len(parts)), wanted)
    sources = [source for source, _ in parts]
    best = np.argsort(distances, axis=1, kind="stable")
    sorted_distances = np.take_along_axis(distances, best, axis=1)
    first = sorted_distances[:, : wanted + 1]
    tied = np.flatnonzero(((first[:, 1:] == first[:, :-1]) & np.isfinite(first[:, 1:])).any(axis=1))
    for item in tied:
        there = np.flatnonzero(rows[item] >= 0)
        keys = [
            (float(distances[item, at]), sort_value(sources[owners[at]].ids_at(rows[item, at : at + 1])[0]))
            for at in there
        ]
        best[item, : len(there)] = there[sorted(range(len(there)), key=keys.__getitem__)]
    best = best[:, :wanted]
    own_rows = np.take_along_axis(rows, best, axis=1)
    places = Places(sources, owners[best], own_rows)
    ids = [[source.ids_at(row)[0] for source, row in places.of(item)] for item in range(items)]
    found_distances = np.take_along_axis(distances, best, axis=1)
    return SearchResult(
        ids, spaces.reported(settings.metric, found_distances), scanned, state.sequence, places
    )
