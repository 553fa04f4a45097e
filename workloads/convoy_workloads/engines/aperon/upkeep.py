"""The upkeep of an index: rows in memory become segments, segments are merged, and copies are made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.errors import NoSpace
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.index_folder import IndexFolder
from convoy_workloads.engines.aperon.segment import Rows, write_segment
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.engines.aperon.state import MemoryTable, MemoryView, SegmentView, State, view_of
from convoy_workloads.engines.aperon.storage import Storage, is_full
from convoy_workloads.runtime.log import log_line

if TYPE_CHECKING:
    from convoy_workloads.engines.aperon.log import Log

MOST_RATIO = 4
"""Segments are merged while the next larger one has at most so many times the rows of those before it."""
PAUSE_SECONDS = 30.0
"""Time without upkeep after the disk had no space."""
Work = Literal["flush", "merge"]


class Upkeep:
    """The part of an index that rewrites its files. One piece of upkeep runs at a time."""

    settings: IndexSettings
    options: Options
    before_publish: Callable[[], None]
    """Called in the thread that flushes, without a lock, before records of the log become obsolete because a
    segment has them.
    """
    _lock: threading.RLock
    _upkeep_lock: threading.Lock
    _storage: Storage
    _folder: IndexFolder
    _log: Log
    _table: MemoryTable
    _state: State
    _paused_until = 0.0
    """Monotonic time until which no upkeep is due, because the disk had no space."""

    def _check_open(self) -> None:
        raise NotImplementedError

    def due(self) -> Work | None:
        """Return the upkeep that is due; None if there is none."""
        if time.monotonic() < self._paused_until:
            return None
        state = self._state
        if sum(len(one.alive) for one in state.memory) >= self.options.flush_rows:
            return "flush"
        return "merge" if self._due_for_merge(state) else None

    def maintain(self) -> Work | None:
        """Do the upkeep that is due. Return it; None if there was none.

        If the disk has no space, the files and the records stay as they are, and upkeep pauses.
        """
        work = self.due()
        try:
            if work == "flush":
                self.flush()
            elif work == "merge":
                with self._upkeep_lock:
                    self._merge(self._due_for_merge(self._state))
        except OSError as error:
            if not is_full(error):
                raise
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            log_line(f"{self._folder.path}: no space for a {work}: delete files, or enlarge the volume")
            return None
        return work

    def _due_for_merge(self, state: State) -> Sequence[SegmentView]:
        """Return the segments to merge: small ones if there are too many, or one with many deleted rows."""
        by_size = sorted(state.segments, key=lambda one: (one.live, one.segment.name))
        if len(by_size) > self.options.most_segments:
            chosen, rows = by_size[:2], by_size[0].live + by_size[1].live
            for one in by_size[2:]:
                if one.live > MOST_RATIO * rows:
                    break
                chosen.append(one)
                rows += one.live
            return chosen
        most = self.options.most_deleted
        return next(([one] for one in by_size if one.segment.rows - one.live > most * one.segment.rows), [])

    def flush(self) -> None:
        """Make a segment of the rows in memory."""
        with self._upkeep_lock:
            with self._lock:
                self._check_open()
                sequence = self._state.sequence
                if sequence == self._folder.manifest.sequence:
                    return
                self._log.rotate()
                pending = self._state.memory
                self._table = MemoryTable(self.settings)
                self._state = State(self._state.segments, (*pending, self._table.view), sequence)
                path = self._folder.next_segment()
            rows = _rows_of(pending, [one.live_rows for one in pending])
            made = write_segment(self._storage, path, self.settings, rows) if rows.ids else None
            self.before_publish()
            with self._lock:
                self._check_open()
                state = self._state
                waiting, newer = state.memory[: len(pending)], state.memory[len(pending) :]
                segments = state.segments
                if made:
                    removed = [
                        one for old, new in zip(pending, waiting, strict=True) for one in _removed(old, new)
                    ]
                    segments = (*segments, _without_ids(view_of(made), removed))
                self._publish(segments, newer, sequence)

    def compact(self) -> None:
        """Merge all segments into one without deleted rows."""
        with self._upkeep_lock:
            self._merge(self._state.segments)

    def _merge(self, chosen: Sequence[SegmentView]) -> None:
        """Replace segments by one. The model of the largest is kept if it still fits."""
        with self._lock:
            self._check_open()
            names = {one.segment.name for one in chosen}
            sources = [one for one in self._state.segments if one.segment.name in names]
            if not sources or (len(sources) == 1 and sources[0].live == sources[0].segment.rows):
                return
            path = self._folder.next_segment()
        rows = _rows_of(sources, [one.segment.rows_of(one.alive) for one in sources])
        model = max(sources, key=lambda one: one.live).segment.model()
        made = write_segment(self._storage, path, self.settings, rows, model) if rows.ids else None
        with self._lock:
            self._check_open()
            state = self._state
            now = {one.segment.name: one for one in state.segments}
            kept = [one for one in state.segments if one.segment.name not in names]
            if made:
                removed: list[Id] = []
                for old in sources:
                    dead = old.alive & ~now[old.segment.name].alive
                    removed += old.ids_at(old.segment.rows_of(dead))
                kept.append(_without_ids(view_of(made), removed))
            self._publish(kept, state.memory, None)

    def _publish(
        self,
        segments: Sequence[SegmentView],
        memory: tuple[MemoryView, ...],
        sequence: int | None,
        search: SearchSettings | None = None,
    ) -> None:
        """Write the manifest, then let searches see its segments. The caller holds the lock."""
        if self.options.fsync != "never":
            # The segments lack the rows that later operations have replaced or deleted. If a power failure
            # took those operations, the records would be lost.
            self._log.sync()
        there = [one for one in segments if one.live]
        written = self._folder.publish(there, sequence=sequence, search=search)
        self._state = State(written, memory, self._state.sequence)

    def set_search_settings(self, search: SearchSettings) -> None:
        """Change the settings of searches that give none. Raises NoSpace; the settings stay as they were."""
        with self._upkeep_lock, self._lock:
            self._check_open()
            try:
                self._publish(self._state.segments, self._state.memory, None, search)
            except OSError as error:
                if is_full(error):
                    raise NoSpace(self._folder.path) from error
                raise

    def fork(self, target: Path) -> int:
        """Make a copy of the index in an empty folder of the same file system, without copying rows. Return
        the number of its last operation. The copy is complete even if the index changes or is deleted.
        """
        # Files are deleted only with the lock, so this needs to wait for no upkeep.
        with self._lock:
            self._check_open()
            self._log.rotate()
            self._folder.fork(target)
            return self._state.sequence


def _rows_of(sources: Sequence[SegmentView | MemoryView], chosen: Sequence[npt.NDArray[np.int64]]) -> Rows:
    ids: list[Id] = []
    records: list[Record] = []
    for source, rows in zip(sources, chosen, strict=True):
        ids += source.ids_at(rows)
        records += source.records_at(rows)
    vectors = np.concatenate([source.vectors_at(rows) for source, rows in zip(sources, chosen, strict=True)])
    return Rows(ids, vectors, records)


def _removed(old: MemoryView, new: MemoryView) -> list[Id]:
    """Return the ids of rows that lived in `old` and do not in `new`."""
    count = len(old.alive)
    return old.ids_at(np.flatnonzero(old.alive & ~new.alive[:count]))


def _without_ids(view: SegmentView, ids: Sequence[Id]) -> SegmentView:
    rows = view.find_live(ids)
    return view.without(rows[rows >= 0])
