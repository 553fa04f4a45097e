"""A vector index in a folder: upsert, delete, search, and its upkeep.

An operation is logged, then applied to the rows in memory and to the deleted rows of segments. `maintain`
makes segments of the rows in memory, and merges segments; call it from a thread of its own. Searches see a
state that does not change, and wait for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon import operations, spaces
from convoy_workloads.engines.aperon.columns import Record, checked_records
from convoy_workloads.engines.aperon.errors import (
    CorruptFile,
    IndexClosed,
    InvalidInput,
    LogGap,
    NoSpace,
    OperationsGone,
)
from convoy_workloads.engines.aperon.filters import parse_filter
from convoy_workloads.engines.aperon.ids import Id, checked_ids
from convoy_workloads.engines.aperon.index_folder import IndexFolder
from convoy_workloads.engines.aperon.log import MOST_BYTES, Log, log_files, read_logs
from convoy_workloads.engines.aperon.operations import Delete, Operation, Replicated, Upsert
from convoy_workloads.engines.aperon.searching import Searcher, SearchRequest, SearchResult
from convoy_workloads.engines.aperon.segment import Rows, write_segment
from convoy_workloads.engines.aperon.settings import MAX_RESULTS, IndexSettings, Options, SearchSettings
from convoy_workloads.engines.aperon.state import MemoryTable, State, view_of
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.engines.aperon.upkeep import Upkeep
from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.hntl import KERNEL
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.kernels.threads import shared_pool


@dataclass(frozen=True, slots=True)
class Applied:
    """An operation that the log holds."""

    sequence: int
    data: bytes
    """The operation for `VectorIndex.apply` of a replica."""
    changed: int
    """Records that were written or deleted."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """A stored record, as `fetch` returns it."""

    id: Id
    vector: Floats
    """As it is stored; for cosine, of length 1."""
    record: Record


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records of an index at one time."""

    state: State
    searcher: Searcher
    settings: IndexSettings

    def search(
        self, queries: Any, results: int, settings: SearchSettings, *, exact: bool = False
    ) -> SearchResult:
        """Return the nearest records of each query. Raises InvalidInput."""
        checked = spaces.checked_vectors("queries", queries, self.settings.dimension, self.settings.metric)
        return self.searcher.search(self.state, SearchRequest(checked, results, settings, exact=exact))

    @property
    def most_grains(self) -> int:
        """Return the number of grains of the segment with the most."""
        return max((one.segment.arrays.grains for one in self.state.segments), default=1)

    @property
    def code_bytes(self) -> int:
        """Return the bytes that a scan reads for each row, in the segment with the longest codes."""
        return max((one.segment.arrays.dims + 4 for one in self.state.segments), default=4)


class VectorIndex(Upkeep):
    """An open index. All methods may be called from several threads."""

    @classmethod
    def create(
        cls,
        path: Path,
        settings: IndexSettings,
        *,
        search: SearchSettings | None = None,
        rows: tuple[Sequence[Id], Any, Sequence[Record] | None] | None = None,
        options: Options | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Make an index in a folder, and open it. `rows`: ids, vectors and metadata to start with, which
        become one segment without passing through the log. Raises IndexExists if the folder has an index, and
        InvalidInput, with the path of the invalid field.
        """
        first = None if rows is None else _checked_rows(settings, *rows)
        path.mkdir(parents=True, exist_ok=True)
        options = options or Options()
        storage = storage or Storage(durable=options.fsync != "never")
        folder = IndexFolder(path, storage)
        try:
            folder.create(settings, search or SearchSettings())
            if first and first.ids:
                folder.open()
                segment = write_segment(storage, folder.next_segment(), settings, first)
                folder.publish([view_of(segment)])
        finally:
            folder.close()
        return cls(path, options=options, storage=storage)

    def __init__(self, path: Path, *, options: Options | None = None, storage: Storage | None = None) -> None:
        """Open an index, and repair what a crash has left. Raises NoIndex, IndexInUse and CorruptFile.

        If the files of the last manifest are damaged, the one before is used with the log, and `problems`
        names the damaged files.
        """
        self.options = options or Options()
        self._lock = threading.RLock()
        self._upkeep_lock = threading.Lock()
        self._storage = storage or Storage(durable=self.options.fsync != "never")
        self._folder = IndexFolder(path, self._storage)
        try:
            self._open()
        except BaseException:
            self._folder.close()
            raise

    def _open(self) -> None:
        opened = self._folder.open()
        self.settings: IndexSettings = opened.manifest.settings
        self.problems: tuple[CorruptFile, ...] = opened.problems
        self.kernel = dispatch.select(KERNEL, self.options.kernel)
        pool = shared_pool(self.options.threads) if self.options.threads != 1 else None
        self._searcher = Searcher(self.kernel.function, pool, self.settings)
        self.before_publish = lambda: None
        self._table = MemoryTable(self.settings)
        self._state = State(opened.segments, (self._table.view,), opened.manifest.sequence)
        self._stopped = ""
        try:
            for number, data in read_logs(self._folder.path, opened.manifest.sequence):
                try:
                    self._perform(number, operations.decode(data))
                except ValueError as error:
                    raise CorruptFile(self._folder.path, f"operation {number} of the log: {error}") from error
        except CorruptFile as problem:
            raise (self.problems or (problem,))[0] from problem
        self._log = Log(self._storage, self._folder.path, self._state.sequence + 1, self.options)

    @property
    def search_settings(self) -> SearchSettings:
        """Return the settings of searches that give none."""
        return self._folder.manifest.search

    @property
    def sequence(self) -> int:
        """Return the number of the last operation."""
        return self._state.sequence

    def __len__(self) -> int:
        return self._state.live

    # Changes

    def upsert(self, ids: Any, vectors: Any, records: Sequence[Any] | None = None) -> Applied:
        """Insert records, or replace those with the same ids: all or none. Raises InvalidInput, with the path
        of the invalid field.
        """
        rows = _checked_rows(self.settings, ids, vectors, records)
        return self._write(Upsert(rows.ids, rows.vectors, list(rows.records)))

    def delete(self, ids: Any = None, *, where: Mapping[str, Any] | None = None) -> Applied:
        """Delete the records with these ids, or those that fulfil a filter. Raises InvalidInput, with the
        path of the invalid field.
        """
        if (ids is None) == (where is None):
            raise InvalidInput("ids", "give either ids or a filter")
        if ids is not None:
            return self._write(Delete(checked_ids("ids", ids, self.settings.id_type)))
        chosen = parse_filter(where, self.settings.fields)
        with self._lock:
            found: list[Id] = []
            for view in self._state.segments:
                found += view.ids_at(view.segment.rows_of(view.filtered(chosen)))
            for memory in self._state.memory:
                found += memory.ids_at(memory.filtered(chosen))
            return self._write(Delete(found))

    def replicate(self, operation: Replicated) -> Applied:
        """Apply operations of replicas. They were checked where they were received."""
        return self._write(operation)

    def apply(self, sequence: int, data: bytes) -> bool:
        """Apply an operation of another replica. Return False if the operation has already been applied.
        Raises LogGap if operations before this one are missing.
        """
        with self._lock:
            expected = self.sequence + 1
            if sequence < expected:
                return False
            if sequence > expected:
                raise LogGap(expected, sequence)
            try:
                operation = operations.decode(data)
            except ValueError as error:
                raise InvalidInput("operation", str(error)) from error
            if isinstance(operation, Upsert):
                _checked_rows(self.settings, operation.ids, operation.vectors, operation.records)
            else:
                checked_ids("ids", operation.ids, self.settings.id_type)
            self._write(operation, data)
            return True

    def operations_after(self, sequence: int, most: int = 1000) -> list[tuple[int, bytes]]:
        """Return logged operations after a number, for `apply` of a replica. Raises OperationsGone if the log
        no longer has them.
        """
        with self._lock:
            if sequence >= self.sequence:
                return []
            oldest = log_files(self._folder.path)[0][0]
            if sequence + 1 < oldest:
                raise OperationsGone(sequence, oldest)
            return list(islice(read_logs(self._folder.path, sequence), most))

    def _write(self, operation: Operation, data: bytes | None = None) -> Applied:
        """Log an operation, then apply it. Raises NoSpace if the disk is full; then nothing was written."""
        data = operations.encode(operation) if data is None else data
        if len(data) > MOST_BYTES:
            raise InvalidInput("ids", f"a batch of {len(data)} bytes is larger than {MOST_BYTES}: send parts")
        with self._lock:
            self._check_open()
            sequence = self.sequence + 1
            try:
                self._log.append(sequence, data)
                return Applied(sequence, data, self._perform(sequence, operation))
            except NoSpace:
                raise  # The log is as it was.
            except BaseException as error:
                # The end of the log is unknown. Opening the index again cuts it off.
                self._stopped = f"operation {sequence} failed: {error or type(error).__name__}"
                raise

    def _perform(self, sequence: int, operation: Operation) -> int:
        """Apply an operation to the state. Return the number of changed records."""
        old, ids = self._state, operation.ids
        segments = []
        changed = 0
        for view in old.segments:
            rows = view.find_live(ids)
            rows = rows[rows >= 0]
            changed += len(rows)
            segments.append(view.without(rows))
        waiting = []
        for memory in old.memory[:-1]:
            left = memory.without(ids)
            changed += int(memory.alive.sum() - left.alive.sum())
            waiting.append(left)
        before = int(self._table.view.alive.sum())
        rows_added = None
        added = operation.upsert if isinstance(operation, Replicated) else operation
        if isinstance(added, Upsert) and added.ids:
            rows_added = Rows(added.ids, added.vectors, added.records)
        self._table.write(ids, rows_added)
        changed += before - int(self._table.view.alive.sum())
        self._state = State(tuple(segments), (*waiting, self._table.view), sequence)
        return len(ids) if rows_added else changed

    def sync(self) -> None:
        """Wait until all operations are on the disk."""
        with self._lock:
            self._check_open()
            self._log.sync()

    # Reads

    def search(
        self,
        queries: Any,
        results: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        settings: SearchSettings | None = None,
        exact: bool = False,
    ) -> SearchResult:
        """Return the nearest records of each query. Raises InvalidInput.

        `where`: a filter. `settings`: others than the index's. `exact`: compare with every record.
        """
        checked = spaces.checked_vectors("queries", queries, self.settings.dimension, self.settings.metric)
        if isinstance(results, bool) or not isinstance(results, int) or not 1 <= results <= MAX_RESULTS:
            raise InvalidInput("results", f"{shown(results)} is no whole number from 1 to {MAX_RESULTS}")
        chosen = None if where is None else parse_filter(where, self.settings.fields)
        request = SearchRequest(
            checked, results, settings or self.search_settings, chosen, exact, self.options.exact_rows
        )
        return self._searcher.search(self._state, request)

    def snapshot(self) -> Snapshot:
        """Return the present state for several searches of the same records."""
        return Snapshot(self._state, self._searcher, self.settings)

    def fetch(self, ids: Any) -> list[Fetched | None]:
        """Return the records with these ids, None for those that are not there."""
        checked = checked_ids("ids", ids, self.settings.id_type)
        found: list[Fetched | None] = [None] * len(checked)
        for source in self._state.sources:
            rows = source.find_live(checked)
            there = np.flatnonzero(rows >= 0)
            own = rows[there]
            for at, vector, record in zip(there, source.vectors_at(own), source.records_at(own), strict=True):
                found[at] = Fetched(checked[at], vector.copy(), record)
        return found

    def ids(self) -> list[Id]:
        """Return the ids of all records."""
        state, found = self._state, list[Id]()
        for view in state.segments:
            found += view.ids_at(view.segment.rows_of(view.alive))
        for memory in state.memory:
            found += memory.ids_at(memory.live_rows)
        return found

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the index by part."""
        found: dict[str, int] = {"memory": sum(one.vectors.nbytes for one in self._state.memory)}
        for view in self._state.segments:
            for part, size in view.segment.sizes().items():
                found[part] = found.get(part, 0) + size
        return found

    def _check_open(self) -> None:
        if self._stopped:
            raise IndexClosed(f"{self._folder.path}: {self._stopped}; open the index again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def abandon(self) -> None:
        """Drop the open files as the death of the process would."""
        self._stopped = "closed"
        self._log.close()
        self._folder.close()

    def close(self) -> None:
        """Close the index. Searches that run may end; further changes raise IndexClosed."""
        with self._upkeep_lock, self._lock:
            if self._stopped != "closed":
                if not self._stopped and self.options.fsync != "never":
                    self._log.sync()
                self._stopped = "closed"
                self._log.close()
                self._folder.close()


def _checked_rows(settings: IndexSettings, ids: Any, vectors: Any, records: Sequence[Any] | None) -> Rows:
    """Return the records of a batch. Raises InvalidInput, with the path of the invalid field."""
    checked = checked_ids("ids", ids, settings.id_type)
    if not checked:
        raise InvalidInput("ids", "no ids")
    found = spaces.checked_vectors("vectors", vectors, settings.dimension, settings.metric)
    if len(found) != len(checked):
        raise InvalidInput("vectors", f"{len(found)} vectors for {len(checked)} ids")
    return Rows(checked, found, checked_records("records", records, len(checked), settings.fields))
