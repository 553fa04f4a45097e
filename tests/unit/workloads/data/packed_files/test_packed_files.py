"""Tests of PackedFiles: access by number and name, several archives, the saved index, other processes."""

from __future__ import annotations

import gc
import os
import pickle
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.data.packed_files.archives import Entry, made

from convoy.data import PackedFiles, PackedFilesError
from convoy_workloads.data.packed_files import packed_files as module
from convoy_workloads.data.packed_files.index_file import index_path
from convoy_workloads.data.packed_files.pack import index_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.tar"
    path.write_bytes(made([Entry(f"f{number}", data=bytes([number]) * number) for number in range(5)]))
    return path


def test_files_by_number_and_name(archive: Path) -> None:
    files = PackedFiles(archive)
    assert (len(files), files[3], files[-1], files["f2"]) == (5, b"\3" * 3, b"\4" * 4, b"\2" * 2)
    assert ("f1" in files, "f9" in files, list(files.sizes)) == (True, False, [0, 1, 2, 3, 4])
    assert list(files) == [files[number] for number in range(5)]
    for number in (5, -6):
        with pytest.raises(IndexError, match="there are 5"):
            files[number]
    with pytest.raises(KeyError):
        files["f9"]
    with pytest.raises(TypeError):
        files[1.0]  # type: ignore[index]


def sample(name: str, data: bytes) -> tuple[str, int]:
    return name, len(data)


def test_decode_makes_the_samples(archive: Path) -> None:
    files = PackedFiles(str(archive), decode=sample)
    assert (files[2], files["f2"], list(files)[4]) == (("f2", 2), ("f2", 2), ("f4", 4))
    assert files.read(2) == files.read("f2") == b"\2\2"


def test_several_archives_are_one(tmp_path: Path, archive: Path) -> None:
    other = tmp_path / "b.tar"
    other.write_bytes(made([Entry("f1", data=b"newer"), Entry("g", data=b"g")]))
    files = PackedFiles([archive, other])
    assert files.names == ["f0", "f2", "f3", "f4", "f1", "g"]
    assert (files["f1"], files.replaced, files[1]) == (b"newer", 1, b"\2\2")


def test_no_archive_is_refused() -> None:
    with pytest.raises(PackedFilesError, match="no archive"):
        PackedFiles([])


def count_scans(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of each archive that is scanned."""
    scanned: list[Path] = []
    scan = module.scan
    monkeypatch.setattr(module, "scan", lambda path, *rest: (scanned.append(path), scan(path, *rest))[1])
    return scanned


def test_a_saved_index_spares_the_scan(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = PackedFiles(archive)
    index_archive(archive)
    scanned = count_scans(monkeypatch)
    files = PackedFiles(archive)
    assert not scanned
    assert (files.names, list(files), files.skipped) == (before.names, list(before), before.skipped)


def older(archive: Path) -> None:
    os.utime(archive, ns=(0, 1))


def longer(archive: Path) -> None:
    stamp = archive.stat().st_mtime_ns
    with archive.open("ab") as file:
        file.write(bytes(512))
    os.utime(archive, ns=(stamp, stamp))


def damaged(archive: Path) -> None:
    path = index_path(archive)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def cut(archive: Path) -> None:
    path = index_path(archive)
    path.write_bytes(path.read_bytes()[:-1])


def other_version(archive: Path) -> None:
    contents = b'{"version": 2}\n'
    index_path(archive).write_bytes(b"%d\n%b" % (zlib.crc32(contents), contents))


def no_index(archive: Path) -> None:
    index_path(archive).write_bytes(b"")


@pytest.mark.parametrize("change", [older, longer, damaged, cut, other_version, no_index])
def test_an_index_that_does_not_fit_is_ignored(
    archive: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    index_archive(archive)
    change(archive)
    scanned = count_scans(monkeypatch)
    assert PackedFiles(archive)["f3"] == b"\3" * 3
    assert scanned == [archive]


@pytest.mark.parametrize("names", [[], ["ä\n", "b", os.fsdecode(b"\xff\xfe")]])
def test_a_saved_index_has_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(made([Entry(name) for name in names]))
    index_archive(path)
    scanned = count_scans(monkeypatch)
    assert PackedFiles(path).names == names
    assert not scanned


def test_a_pickle_opens_the_archives_again(archive: Path) -> None:
    files = PackedFiles(archive, decode=sample)
    data = pickle.dumps(files)
    files.close()
    assert pickle.loads(data)["f3"] == ("f3", 3)


def test_a_pickle_of_an_archive_that_changed_is_refused(archive: Path) -> None:
    data = pickle.dumps(PackedFiles(archive))
    longer(archive)
    with pytest.raises(PackedFilesError, match=r"a\.tar has changed"):
        pickle.loads(data)


def test_an_archive_that_becomes_shorter_while_in_use_is_an_error(archive: Path) -> None:
    files = PackedFiles(archive)
    os.truncate(archive, 2000)
    with pytest.raises(PackedFilesError, match=r"a\.tar, byte \d+: the archive has become shorter"):
        files["f4"]


def test_short_reads_are_continued(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = PackedFiles(archive)
    real = os.pread
    monkeypatch.setattr(module.os, "pread", lambda fd, size, offset: real(fd, min(size, 1), offset))
    assert list(files) == [bytes([number]) * number for number in range(5)]


def test_threads_share_an_object(archive: Path) -> None:
    files = PackedFiles(archive)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: files[number % 5], range(500)))
    assert found == [bytes([number % 5]) * (number % 5) for number in range(500)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_are_closed_with_the_object_and_after_an_error(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(b"bad" * 1000)
    before = open_files()
    files = PackedFiles(archive)
    assert open_files() == before + 1
    del files
    with pytest.raises(PackedFilesError):
        PackedFiles([archive, tmp_path / "bad.tar"])
    with pytest.raises(FileNotFoundError):
        PackedFiles([archive, tmp_path / "missing.tar"])
    gc.collect()
    assert open_files() == before


def test_more_archives_than_open_files_are_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module.os, "open", refuse)
    with pytest.raises(PackedFilesError, match="Each of the 2 archives is one: raise `ulimit -n`"):
        PackedFiles([archive, archive])


def test_workers_of_a_data_loader(archive: Path) -> None:
    from torch.utils.data import DataLoader

    files: Any = PackedFiles(archive, decode=sample)
    loader = DataLoader(files, batch_size=2, num_workers=2)
    assert [name for names, _ in loader for name in names] == files.names
