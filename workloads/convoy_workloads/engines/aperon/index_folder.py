"""The folder of an index: its manifests, segments, tombstones and logs.

manifest-0000000007.json   the segments, and the number of the last operation in them
segment-0000000003.seg     rows
segment-0000000003-5.live  the rows of a segment that are not deleted
log-00000000000000000042.bin   operations from number 42 on
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from convoy_workloads.engines.aperon.errors import CorruptFile, IndexExists, IndexInUse, NoIndex
from convoy_workloads.engines.aperon.log import log_files
from convoy_workloads.engines.aperon.manifest import (
    KEPT,
    Manifest,
    SegmentEntry,
    manifest_files,
    obsolete_files,
    read_manifest,
    write_manifest,
)
from convoy_workloads.engines.aperon.segment import open_segment
from convoy_workloads.engines.aperon.segment_file import read_arrays, write_arrays
from convoy_workloads.engines.aperon.settings import IndexSettings, SearchSettings
from convoy_workloads.engines.aperon.state import SegmentView, view_of
from convoy_workloads.engines.aperon.storage import TEMPORARY, Storage


@dataclass(frozen=True, slots=True)
class Opened:
    """The contents of an index's files."""

    manifest: Manifest
    segments: tuple[SegmentView, ...]
    problems: tuple[CorruptFile, ...]
    """Damaged files of a later manifest, which were not used."""


class IndexFolder:
    """The files of an index that is open. Only one process may have it open."""

    def __init__(self, path: Path, storage: Storage) -> None:
        """Lock the folder. Raises NoIndex if the folder has no index, and IndexInUse if the index is open
        elsewhere.
        """
        self.path, self.storage = path, storage
        try:
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NoIndex(f"{path}: no index: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise IndexInUse(f"{path}: the index is already open") from error
        self._manifests: list[Manifest] = []
        self._number = 0

    @property
    def manifest(self) -> Manifest:
        """Return the manifest in use."""
        return self._manifests[0]

    def create(self, settings: IndexSettings, search: SearchSettings) -> None:
        """Write the first manifest. Raises IndexExists if the folder has a manifest."""
        if manifest_files(self.path):
            raise IndexExists(f"{self.path}: there is already an index")
        write_manifest(self.storage, self.path, Manifest(1, settings, search, 0, 1, ()))

    def open(self) -> Opened:
        """Read the last manifest whose files are whole. Raises NoIndex if the folder has no manifest, and
        CorruptFile if the files of all manifests are damaged.
        """
        for path in self.path.glob(f"*{TEMPORARY}"):
            self.storage.remove(path)
        files = manifest_files(self.path)
        if not files:
            raise NoIndex(f"{self.path}: no manifest")
        problems: list[CorruptFile] = []
        following = 0
        for _, path in files:
            try:
                manifest = read_manifest(path)
                # A later manifest may name a damaged segment. If another segment got that name, the manifest
                # would be whole, with wrong records.
                following = max(following, manifest.next_file)
                segments = tuple(self._open_segment(manifest.settings, one) for one in manifest.segments)
            except CorruptFile as problem:
                problems.append(problem)
                continue
            # The numbers must grow, also past a manifest that is not used.
            self._manifests = [replace(manifest, next_file=following)]
            self._number = files[0][0]
            return Opened(self.manifest, segments, tuple(problems))
        raise problems[0]

    def _open_segment(self, settings: IndexSettings, entry: SegmentEntry) -> SegmentView:
        segment = open_segment(self.segment_path(entry.name), settings)
        view = view_of(segment)
        if not entry.tombstones:
            return view
        path = self.path / entry.tombstones
        _, arrays = read_arrays(path)
        alive = arrays.get("alive")
        if alive is None or alive.shape != view.alive.shape or alive.dtype != view.alive.dtype:
            raise CorruptFile(path, f"it does not fit {segment.path.name}")
        if (alive & ~view.alive).any():
            # The kernel would read behind the last row.
            raise CorruptFile(path, f"it has rows that {segment.path.name} does not have")
        return SegmentView(segment, alive, int(np.bitwise_count(alive).sum()), entry.tombstones)

    def segment_path(self, name: str) -> Path:
        """Return the path of a segment."""
        return self.path / f"{name}.seg"

    def next_segment(self) -> Path:
        """Return the path for a segment to be written. The next manifest counts it."""
        return self.segment_path(f"segment-{self.manifest.next_file:010d}")

    def publish(
        self,
        segments: Sequence[SegmentView],
        *,
        sequence: int | None = None,
        search: SearchSettings | None = None,
    ) -> tuple[SegmentView, ...]:
        """Write a manifest of these segments. Return them with the names of their files.

        `sequence`: the last operation in the segments, if it has changed.
        """
        last = self.manifest
        written = tuple(self._with_tombstones(one) for one in segments)
        manifest = replace(
            last,
            number=self._number + 1,
            sequence=last.sequence if sequence is None else sequence,
            search=search or last.search,
            next_file=last.next_file + 1,
            segments=tuple(SegmentEntry(one.segment.name, one.tombstones) for one in written),
        )
        write_manifest(self.storage, self.path, manifest)
        self._number = manifest.number
        self._manifests = [manifest, *self._manifests][:KEPT]
        self._remove_obsolete()
        return written

    def _with_tombstones(self, view: SegmentView) -> SegmentView:
        if view.tombstones or view.live == view.segment.rows:
            return view
        name = f"{view.segment.name}-{self.manifest.next_file}.live"
        write_arrays(self.storage, self.path / name, {}, {"alive": view.alive})
        return replace(view, tombstones=name)

    def _remove_obsolete(self) -> None:
        """Delete the files that no kept manifest needs, and the logs before them."""
        for path in obsolete_files(self.path, self._manifests):
            self.storage.remove(path)
        oldest = min(one.sequence for one in self._manifests)
        logs = log_files(self.path)
        for (_, path), (following, _) in pairwise(logs):
            if following <= oldest + 1:
                self.storage.remove(path)

    def fork(self, target: Path) -> None:
        """Give all files that the manifest and the logs after it need a second name in an empty folder."""
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise IndexExists(f"{target}: the folder is not empty")
        logs = [path.name for _, path in log_files(self.path)[:-1]]
        for name in sorted(self.manifest.files | set(logs)):
            self.storage.link(self.path / name, target / name)
        write_manifest(self.storage, target, self.manifest)

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
