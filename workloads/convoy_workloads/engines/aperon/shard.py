"""The part of an index that one rank of a replica holds: searches, reads, writes and upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy_workloads.engines.aperon.commands import Hits, Query, Stored
from convoy_workloads.engines.aperon.exports import Exports
from convoy_workloads.engines.aperon.filters import parse_filter
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.operations import Delete, Operation, Replicated
from convoy_workloads.engines.aperon.recall import RecallEstimate, RecallMonitor
from convoy_workloads.engines.aperon.searching import SearchResult
from convoy_workloads.engines.aperon.settings import SearchSettings
from convoy_workloads.kernels.hntl_arrays import Floats


@dataclass(frozen=True, slots=True)
class Facts:
    """The size of a shard, and what is known about its recall."""

    records: int
    segments: int
    sequence: int
    nprobe: int
    candidates: int
    bytes: Mapping[str, int]
    recall: RecallEstimate | None


class Shard:
    """An open index with its monitor of recall."""

    def __init__(self, index: VectorIndex, share: float, budget: float) -> None:
        """`share` and `budget`: those of RecallMonitor."""
        self.index = index
        self.monitor = RecallMonitor(index, share=share, budget=budget)
        self.exports = Exports(index)
        self._samples = share > 0

    def _settings(self, query: Query) -> SearchSettings:
        present = self.index.search_settings
        return SearchSettings(query.nprobe or present.nprobe, query.candidates or present.candidates)

    def query_bytes(self, query: Query) -> int:
        """Return about how many bytes of the index one vector of a search reads."""
        settings, state = self._settings(query), self.index.snapshot().state
        row = 4 * self.index.settings.dimension
        found = row * sum(len(one.alive) for one in state.memory)
        for view in state.segments:
            rows, arrays = view.segment.rows, view.segment.arrays
            if query.exact:
                found += row * rows
                continue
            # A filter that few rows pass probes more grains, at most all of them.
            grains = arrays.grains if query.where is not None else min(settings.nprobe, arrays.grains)
            found += rows * grains // arrays.grains * (arrays.dims + 4)
            found += row * min(max(settings.candidates, query.results), rows)
        return max(1, found)

    def search(self, queries: Floats, query: Query) -> Hits:
        """Return the nearest records of each query."""
        index, present, settings = self.index, self.index.search_settings, self._settings(query)
        found = index.search(queries, query.results, where=query.where, settings=settings, exact=query.exact)
        if self._samples and query.where is None and not query.exact and settings == present:
            self.monitor.offer(queries, query.results)
        counts = [len(one) for one in found.ids]
        return Hits(
            found.ids,
            [row[:count] for row, count in zip(found.distances, counts, strict=True)],
            int(found.scanned.sum()),
            found.sequence,
            found.records() if query.metadata else None,
            _vectors(found, index.settings.dimension) if query.vectors else None,
        )

    def fetch(self, ids: Sequence[Id]) -> list[Stored | None]:
        """Return the records with these ids, None for those that are not there."""
        found = self.index.fetch(ids)
        return [None if one is None else Stored(one.id, one.vector, one.record) for one in found]

    def present(self, ids: Sequence[Id]) -> int:
        """Return the number of records with these ids."""
        sources = self.index.snapshot().state.sources
        return sum(int((one.find_live(ids) >= 0).sum()) for one in sources)

    def chosen(self, where: Mapping[str, Any]) -> list[Id]:
        """Return the ids of the records that fulfil a filter."""
        state, found = self.index.snapshot().state, list[Id]()
        chosen = parse_filter(where, self.index.settings.fields)
        for view in state.segments:
            found += view.ids_at(view.segment.rows_of(view.filtered(chosen)))
        for memory in state.memory:
            found += memory.ids_at(memory.filtered(chosen))
        return found

    def count(self, where: Mapping[str, Any] | None) -> int:
        """Return the number of records that fulfil a filter."""
        if where is None:
            return len(self.index)
        state = self.index.snapshot().state
        chosen = parse_filter(where, self.index.settings.fields)
        segments = sum(int(np.bitwise_count(one.filtered(chosen)).sum()) for one in state.segments)
        return segments + sum(len(one.filtered(chosen)) for one in state.memory)

    def write(self, operation: Operation) -> int:
        """Log and apply an operation. Return the number of changed records. `sync` makes it durable."""
        if isinstance(operation, Replicated):
            return self.index.replicate(operation).changed
        if isinstance(operation, Delete):
            return self.index.delete(operation.ids).changed
        return self.index.upsert(operation.ids, operation.vectors, operation.records).changed

    def sync(self) -> None:
        """Wait until all operations are on the disk."""
        self.index.sync()

    def facts(self) -> Facts:
        """Return the facts about the shard."""
        search = self.index.search_settings
        return Facts(
            len(self.index),
            len(self.index.snapshot().state.segments),
            self.index.sequence,
            search.nprobe,
            search.candidates,
            self.index.sizes(),
            self.monitor.estimate(),
        )


def _vectors(found: SearchResult, dimension: int) -> list[Floats]:
    """Return the vectors of each query's results."""
    vectors = []
    for item in range(len(found.ids)):
        rows = [source.vectors_at(row) for source, row in found.places.of(item)]
        vectors.append(np.concatenate(rows) if rows else np.empty((0, dimension), np.float32))
    return vectors
