"""Random operations, crashes and damaged files, compared with a dict.

    python -m convoy_workloads.engines.aperon.random_schedule [--operations 1000000] [--seed 0] [--folder DIR]

Every search is checked: no result was deleted, each distance is that of the record's last vector, and exact
searches return what the dict says. A crash happens inside a file operation: a part of the data is written,
and of what was not synced, the end or any page may be lost. The next open must have every acknowledged
operation, and of those after the last sync the first ones.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.faulty_storage import Crash, FaultyStorage
from convoy_workloads.engines.aperon.ids import sort_value
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.manifest import manifest_files, read_manifest
from convoy_workloads.engines.aperon.searching import SearchResult
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.kernels import hntl_twin
from convoy_workloads.kernels.hntl_arrays import Floats

DIMENSION = 8
_IDS = 250
_OPTIONS = Options(flush_rows=40, most_segments=3, exact_rows=6)
_TOGETHER = replace(_OPTIONS, fsync="interval", fsync_seconds=3600)
"""Options with which operations are acknowledged together, at the next sync."""
_SETTINGS = IndexSettings(DIMENSION, fields={"group": "integer"}, grains=3, dims=4)
_WEIGHTS = {
    "upsert": 30, "delete": 15, "delete_where": 1, "search": 30, "exact": 4, "filtered": 6, "fetch": 4,
    "sync": 6, "maintain": 7, "compact": 0.4, "crash": 2, "reopen": 0.4, "damage": 0.2, "fork": 0.1,
}  # fmt: skip


class Mismatch(AssertionError):
    """The index does not have the contents of the dict."""


class Schedule:
    """An index and the dict that says what it must contain."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = np.random.default_rng(seed)
        self._storage = FaultyStorage(self._rng)
        self._options = _OPTIONS
        self._expected: dict[str, tuple[Floats, Record]] = {}
        self._states = [self._expected]
        """The dict after the last acknowledged operation, and after each one since."""
        self._damaged: set[Path] = set()
        self.counts: Counter[str] = Counter()
        self.results = 0
        """Results of searches that were checked."""
        self._names = list(_WEIGHTS)
        self._weights = np.cumsum(list(_WEIGHTS.values())) / sum(_WEIGHTS.values())
        self._index = VectorIndex.create(
            folder / "index", _SETTINGS, search=SearchSettings(2, 10), options=_OPTIONS, storage=self._storage
        )

    def run(self, operations: int) -> None:
        """Perform random operations. Raises Mismatch if the index differs from the dict."""
        for _ in range(operations):
            name = self._names[int(np.searchsorted(self._weights, self._rng.random()))]
            self.counts[name] += 1
            getattr(self, f"_{name}")()
        self._check_all()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _ids(self, most: int) -> list[str]:
        chosen = self._rng.choice(_IDS, int(self._rng.integers(1, most + 1)), replace=False)
        return [f"id-{one}" for one in chosen]

    def _vectors(self, count: int) -> Floats:
        """Return vectors on a coarse grid, so that distances tie."""
        return self._rng.integers(-2, 3, (count, DIMENSION)).astype(np.float32)

    def _upsert(self) -> None:
        ids = self._ids(4)
        vectors = self._vectors(len(ids))
        records: list[Record] = [{"group": int(one)} for one in self._rng.integers(0, 20, len(ids))]
        added = dict(zip(ids, zip(vectors, records, strict=True), strict=True))
        self._perform(lambda: self._index.upsert(ids, vectors, records), self._expected | added)

    def _delete(self) -> None:
        ids = self._ids(4)
        left = {one: value for one, value in self._expected.items() if one not in ids}
        self._perform(lambda: self._index.delete(ids), left)

    def _delete_where(self) -> None:
        group = int(self._rng.integers(20))
        left = {one: value for one, value in self._expected.items() if value[1]["group"] != group}
        self._perform(lambda: self._index.delete(where={"group": group}), left)

    def _perform(self, change: Callable[[], object], after: dict[str, tuple[Floats, Record]]) -> None:
        """Change the index. After a crash, the dict follows the log."""
        acknowledged = self._acknowledged
        self._states.append(after)
        try:
            change()
        except Crash:
            self._recover(acknowledged)
        else:
            self._expected = after
            if self._options.fsync == "always":
                self._acknowledge()

    @property
    def _acknowledged(self) -> int:
        """Return the number of the last acknowledged operation."""
        return self._index.sequence + 1 - len(self._states)

    def _acknowledge(self) -> None:
        self._states = [self._expected]

    def _sync(self) -> None:
        acknowledged = self._acknowledged
        try:
            self._index.sync()
        except Crash:
            self._recover(acknowledged)
        else:
            self._acknowledge()

    def _search(self) -> None:
        queries = self._vectors(int(self._rng.integers(1, 4)))
        self._check(queries, self._index.search(queries, int(self._rng.integers(1, 8))))

    def _exact(self) -> None:
        queries = self._vectors(1)
        found = self._index.search(queries, 7, exact=True)
        self._check(queries, found)
        self._check_exact(queries, found, self._expected)

    def _filtered(self) -> None:
        queries, limit = self._vectors(1), int(self._rng.integers(21))
        found = self._index.search(queries, 5, where={"group": {"$lt": limit}})
        self._check(queries, found)
        left = {one: value for one, value in self._expected.items() if int(value[1]["group"]) < limit}
        if not set(found.ids[0]) <= set(left) or len(found.ids[0]) != min(5, len(left)):
            raise Mismatch(f"filter below {limit}: {found.ids[0]} of {sorted(left)}")
        if len(left) <= _OPTIONS.exact_rows:
            self._check_exact(queries, found, left)

    def _check(self, queries: Floats, found: SearchResult) -> None:
        """Check that no result was deleted, and that each has the distance of its last vector."""
        for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
            self.results += len(ids)
            if gone := [one for one in ids if one not in self._expected]:
                raise Mismatch(f"deleted records were returned: {gone}")
            vectors = [self._expected[str(one)][0] for one in ids]
            if ids and not np.array_equal(_distances(query, np.stack(vectors)), distances[: len(ids)]):
                raise Mismatch(f"distances of {ids} are not those of their last vectors")

    def _check_exact(
        self, queries: Floats, found: SearchResult, left: dict[str, tuple[Floats, Record]]
    ) -> None:
        if not left:
            expected: list[str] = []
        else:
            distances = _distances(queries[0], np.stack([vector for vector, _ in left.values()]))
            ranked = sorted(
                zip(distances.tolist(), left, strict=True), key=lambda one: (one[0], sort_value(one[1]))
            )
            expected = [one for _, one in ranked[: found.distances.shape[1]]]
        if found.ids[0] != expected:
            raise Mismatch(f"an exact search returned {found.ids[0]}, not {expected}")

    def _fetch(self) -> None:
        ids = self._ids(5)
        for one, found in zip(ids, self._index.fetch(ids), strict=True):
            expected = self._expected.get(one)
            if (found is None) != (expected is None):
                raise Mismatch(f"{one} is {'missing' if found is None else 'not deleted'}")
            if (
                found
                and expected
                and (found.vector.tolist(), found.record) != (expected[0].tolist(), expected[1])
            ):
                raise Mismatch(f"{one} is {found}, not {expected}")

    def _maintain(self) -> None:
        self._upkeep(self._index.maintain)

    def _compact(self) -> None:
        self._upkeep(self._index.compact)

    def _upkeep(self, work: Callable[[], object]) -> None:
        acknowledged = self._acknowledged
        try:
            work()
        except Crash:
            self._recover(acknowledged)

    def _crash(self) -> None:
        self._storage.left = int(self._rng.integers(1, 12))

    def _recover(self, acknowledged: int) -> None:
        """Open the index as a restarted process does. The dict follows the log."""
        self.counts["crashes"] += 1
        self._storage.left = -1
        self._index.abandon()
        self._open()
        kept = self._index.sequence - acknowledged
        if not 0 <= kept < len(self._states):
            raise Mismatch(
                f"operation {acknowledged} was acknowledged, and {len(self._states) - 1} followed; "
                f"{self._index.sequence} is the last one there"
            )
        self.counts["lost"] += len(self._states) - 1 - kept
        self._expected = self._states[kept]
        self._acknowledge()
        # Files that the schedule has damaged stay until the next manifest.
        if damaged := [one for one in self._index.problems if one.path not in self._damaged]:
            raise Mismatch(f"a crash left damaged files: {damaged}")

    def _open(self) -> None:
        self._options = _TOGETHER if self._rng.integers(2) else _OPTIONS
        with contextlib.redirect_stderr(io.StringIO()):  # It says what a crash has left.
            self._index = VectorIndex(self._folder / "index", options=self._options, storage=self._storage)

    def _reopen(self) -> None:
        self._storage.left = -1
        self._index.close()
        self._open()
        self._acknowledge()
        self._check_all()

    def _damage(self) -> None:
        """Change a byte of the last manifest, or of a segment that only that one names."""
        self._storage.left = -1
        folder = self._folder / "index"
        manifests = manifest_files(folder)
        if len(manifests) < 2 or any(one.exists() for one in self._damaged):
            return
        self._index.close()
        own = read_manifest(manifests[0][1]).files - read_manifest(manifests[1][1]).files
        path = self._rng.choice(np.array([manifests[0][1].name, *sorted(own)]))
        data = bytearray((folder / path).read_bytes())
        data[int(self._rng.integers(len(data) // 4))] ^= 0xFF
        (folder / path).write_bytes(data)
        self._open()
        self._acknowledge()
        self._damaged = {one.path for one in self._index.problems}
        self.counts["repairs"] += len(self._damaged)
        self._check_all()

    def _fork(self) -> None:
        self._storage.left = -1
        target = self._folder / "fork"
        self._index.fork(target)
        with VectorIndex(target, options=_OPTIONS, storage=self._storage) as copy:
            copy.upsert(["only in the copy"], self._vectors(1))
            if len(copy) != len(self._expected) + 1:
                raise Mismatch(f"a fork has {len(copy) - 1} of {len(self._expected)} records")
        shutil.rmtree(target)
        self._check_all()

    def _check_all(self) -> None:
        found = sorted(map(str, self._index.ids()))
        if found != sorted(self._expected) or len(self._index) != len(found):
            raise Mismatch(f"the index has {len(found)} records, the dict {len(self._expected)}")


def _distances(query: Floats, vectors: Floats) -> Floats:
    found: Floats = hntl_twin.distances(0, query[None], vectors)[0]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Print the counts; fail at the first mismatch."""
    parser = argparse.ArgumentParser(description="Compare an index with a dict over random operations.")
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="folder for the files (default: a temporary one)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        start = time.perf_counter()
        schedule = Schedule(Path(folder), chosen.seed)
        schedule.run(chosen.operations)
        schedule.close()
    print(f"{chosen.operations} operations in {time.perf_counter() - start:.0f} s, seed {chosen.seed}:")
    print(", ".join(f"{count} {name}" for name, count in sorted(schedule.counts.items())))
    print(f"{schedule.results} results checked; 0 of deleted records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
