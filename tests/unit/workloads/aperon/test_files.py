"""Tests of an index's files: round trips, damage, crashes, forks and the operations of replicas."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.aperon_index import QUICK, clustered, made

from convoy_workloads.engines.aperon import log, operations, storage
from convoy_workloads.engines.aperon.description import describe
from convoy_workloads.engines.aperon.errors import (
    CorruptFile,
    IndexClosed,
    IndexExists,
    IndexInUse,
    InvalidInput,
    LogGap,
    NoIndex,
    NoSpace,
    OperationsGone,
)
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.manifest import manifest_files
from convoy_workloads.engines.aperon.operations import Delete
from convoy_workloads.engines.aperon.segment_file import read_arrays, write_arrays
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.engines.aperon.storage import AppendFile, Storage

FIELDS = {"word": "keyword", "count": "integer", "share": "float", "yes": "boolean"}
RECORD = {"word": "ä", "count": -3, "share": 0.5, "yes": False}


def contents(index: VectorIndex) -> dict[Any, Any]:
    ids = sorted(index.ids(), key=str)
    found = (one for one in index.fetch(ids) if one)
    return {one.id: (one.vector.tolist(), one.record) for one in found}


def filled(folder: Path, rows: int = 60) -> VectorIndex:
    """Return an index with a segment, deleted rows in it, and rows in memory."""
    index = VectorIndex.create(folder, IndexSettings(6, fields=FIELDS, grains=3), options=QUICK)
    vectors = clustered(rows, 6)
    index.upsert([f"ü{at}" for at in range(rows)], vectors, [RECORD] * (rows - 1) + [{}])
    index.flush()
    index.delete(["ü1", "ü2"])
    index.upsert(["ü3", "more"], vectors[:2], [{"count": 5}, None])
    return index


@pytest.mark.parametrize("closed", [True, False])
def test_an_index_opens_with_all_that_was_acknowledged(tmp_path: Path, closed: bool) -> None:
    index = filled(tmp_path)
    expected, queries = contents(index), clustered(5, 6, seed=4)
    found = index.search(queries, 5)
    _ = index.close() if closed else index.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert contents(again) == expected and len(again) == 59
        assert again.sequence == 3
        other = again.search(queries, 5)
        assert other.ids == found.ids and other.distances.tobytes() == found.distances.tobytes()
        again.compact()
        again.flush()
        again.compact()
        assert contents(again) == expected
    assert len(list(tmp_path.glob("*.seg"))) <= 3


def test_arrays_come_back_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "some.seg"
    arrays = {"a": np.arange(10, dtype=">i4"), "b": np.zeros((0, 3), np.float32), "c": np.array([True])}
    write_arrays(Storage(durable=False), path, {"x": 1}, arrays)
    values, found = read_arrays(path)
    assert values == {"x": 1} and all(np.array_equal(found[name], arrays[name]) for name in arrays)
    data = path.read_bytes()
    header = int.from_bytes(data[8:16], "little")
    start = 64 + -(-header // 64) * 64
    meaningful = [*range(20), *range(64, 64 + header), *range(start, start + 40), start + 64]
    for at in meaningful[::3]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptFile, match=r"some\.seg"):
            read_arrays(path)
    for size in (0, 10, 70, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptFile, match=r"some\.seg"):
            read_arrays(path)


@pytest.mark.parametrize("damage", ["manifest", "segment", "missing", "tombstones"])
def test_a_damaged_file_is_named_and_the_manifest_before_serves(tmp_path: Path, damage: str) -> None:
    index = filled(tmp_path)
    index.flush()
    index.upsert(["last"], [[0] * 6])
    expected = contents(index)
    index.close()
    path = {
        "manifest": manifest_files(tmp_path)[0][1],
        "segment": max(tmp_path.glob("*.seg")),
        "missing": max(tmp_path.glob("*.seg")),
        "tombstones": max(tmp_path.glob("*.live")),
    }[damage]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-40])
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert [one.path for one in again.problems] == [path]
        assert contents(again) == expected
        again.flush()
        again.flush()
    with VectorIndex(tmp_path, options=QUICK) as repaired:
        assert repaired.problems == () and contents(repaired) == expected


@pytest.mark.parametrize("damage", ["segment", "missing", "tombstones"])
def test_a_name_of_a_damaged_file_is_not_given_again(tmp_path: Path, damage: str) -> None:
    """A process dies between a segment and its manifest. The manifest with the damaged file stays unused."""
    index = filled(tmp_path)
    index.flush()
    index.close()
    path = max(tmp_path.glob("*.live" if damage == "tombstones" else "*.seg"))
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-40])
    last = manifest_files(tmp_path)[0][1]

    class Died(BaseException):
        pass

    class DyingStorage(Storage):
        def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
            if path.suffix == ".json":
                raise Died
            super().write(path, chunks)

    dying = VectorIndex(tmp_path, options=QUICK, storage=DyingStorage(durable=False))
    dying.upsert(["later"], [[1] * 6])
    dying.delete([next(iter(contents(dying)))])
    expected = contents(dying)
    with pytest.raises(Died):
        dying.flush()
    dying.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert contents(again) == expected
        assert [one.path for one in again.problems] == [path]
        assert manifest_files(tmp_path)[0][1] == last
        again.flush()
        assert contents(again) == expected


def test_copies_in_the_folder_of_an_index_change_nothing_and_stay(tmp_path: Path) -> None:
    filled(tmp_path).close()
    names = ("manifest-old.json", "manifest-0000000009 (copy).json", "a.seg", "log-backup.bin", "log-7.bin")
    copies = [tmp_path / name for name in names]
    for copy in copies:
        copy.write_text("{}")
    with VectorIndex(tmp_path, options=QUICK) as index:
        expected = contents(index)
        index.flush()
        assert contents(index) == expected and all(copy.exists() for copy in copies)


def test_an_index_without_a_whole_manifest_does_not_open(tmp_path: Path) -> None:
    index = filled(tmp_path)
    index.close()
    for path in tmp_path.glob("*.seg"):
        path.write_bytes(b"no segment")
    for _, path in manifest_files(tmp_path)[1:]:
        path.unlink()
    with pytest.raises(CorruptFile, match="segment-"):
        VectorIndex(tmp_path)
    with pytest.raises(NoIndex):
        VectorIndex(tmp_path / "elsewhere")


def test_a_fork_shares_rows_and_goes_its_own_way(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as index:
        expected = contents(index)
        assert index.fork(tmp_path / "b") == 3
        shared = max((tmp_path / "b").glob("*.seg"))
        assert shared.stat().st_nlink == 2
        with VectorIndex(tmp_path / "b", options=QUICK) as fork:
            assert contents(fork) == expected
            fork.upsert(["mine"], [[1] * 6])
            fork.compact()
            index.delete(index.ids())
            index.compact()
            index.flush()
            assert len(index) == 0 and len(fork) == len(expected) + 1
        with pytest.raises(IndexExists):
            index.fork(tmp_path / "b")
    with VectorIndex(tmp_path / "a", options=QUICK) as index:
        assert len(index) == 0


def test_a_replica_follows_by_operations(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as index, made(tmp_path / "c", clustered(9, 6)) as other:
        settings = index.settings
        with VectorIndex.create(tmp_path / "b", settings, options=QUICK) as replica:
            logged = index.operations_after(0)
            for number, data in logged[:2]:
                assert replica.apply(number, data)
            assert not replica.apply(*logged[1])
            with pytest.raises(LogGap, match="operation 7 does not follow operation 2: send 3 first"):
                replica.apply(7, logged[2][1])
            with pytest.raises(InvalidInput, match="operation: "):
                replica.apply(3, b"nonsense")
            with pytest.raises(InvalidInput, match=r"ids\[0\]: 7 is no string"):
                replica.apply(3, operations.encode(Delete([7])))
            assert replica.apply(*logged[2])
            assert contents(replica) == contents(index)
            applied = index.delete(["more"])
            assert applied.sequence == 4 and replica.apply(applied.sequence, applied.data)
            assert index.operations_after(4) == []
        with pytest.raises(InvalidInput, match="dimension 6 instead of 4"):
            VectorIndex.create(tmp_path / "d", IndexSettings(4, fields=FIELDS)).apply(1, logged[0][1])
        for _ in range(3):
            index.upsert(["x"], [[0] * 6])
            index.flush()
        with pytest.raises(OperationsGone, match="copy the index"):
            index.operations_after(0)
        assert other.operations_after(0) == []


class Interrupted(Storage):
    """A storage that calls a function before it writes a segment."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.before: Callable[[], object] = lambda: None

    def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
        if path.suffix == ".seg":
            self.before()
        super().write(path, chunks)


@pytest.mark.parametrize("work", ["flush", "compact"])
def test_changes_during_upkeep_are_kept(tmp_path: Path, work: str) -> None:
    storage = Interrupted()
    filled(tmp_path).close()
    with VectorIndex(tmp_path, options=QUICK, storage=storage) as index:

        def change() -> None:
            index.delete(["ü5", "more"])
            index.upsert(["ü6", "ü3"], np.ones((2, 6)), [{"count": 1}, {"count": 2}])

        storage.before = change
        getattr(index, work)()
        found = contents(index)
        assert "ü5" not in found and "more" not in found
        assert found["ü6"] == ([1] * 6, {"count": 1}) and found["ü3"] == ([1] * 6, {"count": 2})
        assert len(found) == len(index) == 57
        index.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert contents(again) == found


class FullDisk(Storage):
    """A storage whose disk may be full: half of what is written fits."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.full = True

    def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
        def some() -> Iterator[bytes | memoryview]:
            for number, chunk in enumerate(chunks):
                if self.full and number:
                    raise OSError(errno.ENOSPC, "no space")
                yield chunk

        super().write(path, some())


def test_on_a_full_disk_writes_are_refused_and_searches_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()

    def write(descriptor: int, data: memoryview) -> int:
        if disk.full and len(data) < 20:
            raise OSError(errno.ENOSPC, "no space")
        return write_bytes(descriptor, data[: len(data) // 2] if disk.full else data)

    filled(tmp_path).close()
    write_bytes = os.write
    monkeypatch.setattr(storage.os, "write", write)
    options = Options(fsync="never", flush_rows=2)
    with VectorIndex(tmp_path, options=options, storage=disk) as index:
        expected, sequence = contents(index), index.sequence
        with pytest.raises(NoSpace, match=r"disk: no space for .*log-.*Searches go on"):
            index.upsert(["new"], [[1] * 6])
        assert index.due() == "flush" and index.maintain() is None and index.due() is None
        assert not list(tmp_path.glob("*.tmp"))
        assert contents(index) == expected and index.sequence == sequence
        disk.full = False
        index.upsert(["new"], [[1] * 6])
        expected = contents(index)
        index._paused_until = 0
        assert index.maintain() == "flush" and contents(index) == expected
        index.upsert(["last"], [[2] * 6])
        expected = contents(index)
        index.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert contents(again) == expected and "new" in expected


def test_a_log_goes_on_if_there_is_no_space_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full before the name of the next log is on it, then after."""
    with VectorIndex.create(tmp_path, IndexSettings(6, grains=3), options=Options(flush_rows=1)) as index:
        index.upsert(["first"], [[1] * 6])
        full = OSError(errno.ENOSPC, "no space")
        for name, error in (("open_append", full), ("sync_folder", full)):
            with monkeypatch.context() as context:
                context.setattr(Storage, name, lambda *_, error=error: (_ for _ in ()).throw(error))
                assert index.maintain() is None
            assert len(log.log_files(tmp_path)) == 1
            index._paused_until = 0
            index.upsert([name], [[2] * 6])
        index.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert len(again) == 3 and again.sequence == 3


def test_search_settings_without_space_are_refused_and_the_former_ones_stay(tmp_path: Path) -> None:
    class NoManifests(Storage):
        def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
            raise OSError(errno.EDQUOT, "no space")

    with filled(tmp_path) as index:
        former, expected = index.search_settings, contents(index)
    with VectorIndex(tmp_path, options=QUICK, storage=NoManifests(durable=False)) as index:
        with pytest.raises(NoSpace, match=r"disk: no space for .*Searches go on"):
            index.set_search_settings(SearchSettings(3, 77))
        assert index.search_settings == former and contents(index) == expected
        index.upsert(["new"], [[1] * 6])


@pytest.mark.parametrize("work", ["compact", "set_search_settings"])
def test_a_manifest_has_no_operation_that_a_power_failure_takes(tmp_path: Path, work: str) -> None:
    """Otherwise a record that was replaced would be neither in a segment nor in the log."""

    class LogFile(AppendFile):
        synced = 0

        def sync(self) -> None:
            self.synced = self.size()

    class Logs(Storage):
        def open_append(self, path: Path) -> AppendFile:
            self.last = LogFile(path)
            return self.last

    filled(tmp_path).close()
    logs = Logs(durable=False)
    index = VectorIndex(tmp_path, options=Options(fsync="interval", fsync_seconds=3600), storage=logs)
    ids = set(contents(index))
    index.upsert(["ü5"], [[1] * 6])
    _ = index.compact() if work == "compact" else index.set_search_settings(SearchSettings(3, 77))
    index.delete(["ü7"])
    logs.last.truncate(logs.last.synced)
    index.abandon()
    with VectorIndex(tmp_path, options=QUICK) as again:
        assert set(contents(again)) == ids


def test_rows_that_a_segment_does_not_have_are_no_tombstones(tmp_path: Path) -> None:
    with filled(tmp_path) as index:
        index.flush()
        expected = contents(index)
    (path,) = tmp_path.glob("*.live")
    _, arrays = read_arrays(path)
    write_arrays(Storage(durable=False), path, {}, {"alive": ~(arrays["alive"] & 0)})
    with VectorIndex(tmp_path, options=QUICK) as index:
        assert "it has rows that segment-0000000001.seg does not have" in str(index.problems[0])
        assert contents(index) == expected


def test_upkeep_is_due_by_rows_segments_and_deleted_rows(tmp_path: Path) -> None:
    options = Options(fsync="never", flush_rows=20, most_segments=2, most_deleted=0.5)
    with VectorIndex.create(tmp_path, IndexSettings(3), options=options) as index:
        done = []
        for at in range(4):
            index.upsert([f"{at}-{row}" for row in range(20)], clustered(20, 3, seed=at))
            while work := index.maintain():
                done.append(work)
        assert done == ["flush", "flush", "flush", "merge", "flush"]
        index.delete([f"3-{row}" for row in range(11)])
        assert index.due() == "merge"
        assert index.maintain() == "merge" and index.due() is None and len(index) == 69


def test_one_process_has_an_index_open(tmp_path: Path) -> None:
    with filled(tmp_path) as index:
        with pytest.raises(IndexInUse):
            VectorIndex(tmp_path)
        with pytest.raises(IndexInUse):
            VectorIndex.create(tmp_path, index.settings)
    with pytest.raises(IndexExists):
        VectorIndex.create(tmp_path, index.settings)
    with pytest.raises(IndexClosed):
        index.delete(["x"])
    index.close()


def test_search_settings_are_kept(tmp_path: Path) -> None:
    with filled(tmp_path) as index:
        index.set_search_settings(SearchSettings(3, 77))
    with VectorIndex(tmp_path) as again:
        assert again.search_settings == SearchSettings(3, 77) and len(again) == 59


def test_a_description_has_the_numbers_of_an_index(tmp_path: Path) -> None:
    with filled(tmp_path) as index:
        found = describe(index)
    assert found["records"] == 59 and found["sequence"] == 3 and found["memory_rows"] == 2
    assert found["segments"][0] | {"residual": 0, "fitted_residual": 0} == {
        "name": "segment-0000000001",
        "rows": 60,
        "deleted": 3,
        "grains": 3,
        "frame": 16,
        "dims": 16,
        "residual": 0,
        "fitted_residual": 0,
    }
    assert found["kernel"]["instruction_set"] in ("avx512vnni", "avx2", "twin")
    assert found["bytes"]["vectors"] == 60 * 6 * 4 and found["due"] is None
    assert json.loads(json.dumps(found)) == found
