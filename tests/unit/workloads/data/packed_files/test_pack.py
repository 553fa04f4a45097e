"""Tests that folders are packed into archives that any tar can read."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.data.packed_files import pack as module
from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.index_file import index_path
from convoy_workloads.data.packed_files.pack import Source, archive_paths, pack, split
from convoy_workloads.data.packed_files.packed_files import PackedFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("b/2", "b/10", "a", "ä" * 70, "long" * 30, "b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 50)
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to("a")
    (folder / "nothing").mkdir()
    return folder


def loose(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


def test_a_packed_folder_has_all_files_sorted_by_name(tmp_path: Path, folder: Path) -> None:
    pack(folder, tmp_path / "out.tar")
    files = PackedFiles(tmp_path / "out.tar")
    assert files.names == sorted(loose(folder), key=os.fsencode)
    assert dict(zip(files.names, files, strict=True)) == loose(folder)


def test_gnu_tar_unpacks_the_archive(tmp_path: Path, folder: Path) -> None:
    pack(folder, tmp_path / "out.tar")
    (tmp_path / "unpacked").mkdir()
    command = ["tar", "-xf", tmp_path / "out.tar", "-C", tmp_path / "unpacked"]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""
    assert loose(tmp_path / "unpacked") == loose(folder)


def test_equal_folders_give_equal_bytes(tmp_path: Path, folder: Path) -> None:
    pack(folder, tmp_path / "one.tar")
    for name in ("a", "b/2"):
        os.utime(folder / name, (1, 1))
        (folder / name).chmod(0o600)
    pack(folder, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_several_archives_have_all_files(tmp_path: Path, folder: Path) -> None:
    found = pack(folder, tmp_path / "out.tar", archives=3)
    assert [one.path.name for one in found] == ["out-0.tar", "out-1.tar", "out-2.tar"]
    files = PackedFiles([one.path for one in found])
    assert files.names == sorted(loose(folder), key=os.fsencode)
    assert sum(one.bytes for one in found) == sum(map(len, loose(folder).values()))


@given(sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=50), parts=st.integers(1, 50))
def test_a_split_keeps_the_order_and_fills_each_part(sizes: list[int], parts: int) -> None:
    sources = [Source(str(number), size) for number, size in enumerate(sizes)]
    parts = min(parts, len(sizes))
    found = split(sources, parts)
    assert [one for part in found for one in part] == sources
    assert len(found) == parts
    assert all(found)
    if all(size == sizes[0] for size in sizes) and sizes[0]:
        assert max(map(len, found)) - min(map(len, found)) <= 1


def test_numbers_of_archives() -> None:
    assert [one.name for one in archive_paths(Path("x.tar"), 11)][::10] == ["x-00.tar", "x-10.tar"]
    for number in (0, 1001):
        with pytest.raises(PackedFilesError, match=f"from 1 to 1000, not {number}"):
            archive_paths(Path("x.tar"), number)


def test_an_existing_archive_is_kept_without_force(tmp_path: Path, folder: Path) -> None:
    out = tmp_path / "out.tar"
    out.write_bytes(b"mine")
    with pytest.raises(PackedFilesError, match="already exists"):
        pack(folder, out)
    assert out.read_bytes() == b"mine"
    pack(folder, out, force=True)
    assert PackedFiles(out)["a"] == b"a" * 50


def missing_link(folder: Path) -> str:
    (folder / "broken").symlink_to("nowhere")
    return "broken is a symbolic link to a missing file"


def linked_folder(folder: Path) -> str:
    (folder / "other").symlink_to("b")
    return "other is a symbolic link to a folder"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe is neither a file nor a folder"


@pytest.mark.parametrize("add", [missing_link, linked_folder, pipe])
def test_a_folder_with_other_things_is_refused(
    tmp_path: Path, folder: Path, add: Callable[[Path], str]
) -> None:
    message = add(folder)
    with pytest.raises(PackedFilesError, match=message):
        pack(folder, tmp_path / "out.tar")
    assert not (tmp_path / "out.tar").exists()


def test_wrong_places_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(PackedFilesError, match="lies in the folder to pack"):
        pack(folder, folder / "b" / "out.tar")
    with pytest.raises(PackedFilesError, match="is a folder: give the path of a file"):
        pack(folder, tmp_path)
    with pytest.raises(PackedFilesError, match="is no folder"):
        pack(folder / "a", tmp_path / "out.tar")
    with pytest.raises(PackedFilesError, match="has no files"):
        pack(folder / "nothing", tmp_path / "out.tar")
    with pytest.raises(PackedFilesError, match="8 files do not fill 9 archives"):
        pack(folder, tmp_path / "out.tar", archives=9)


@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_that_changes_meanwhile_is_an_error_and_leaves_nothing(
    tmp_path: Path, folder: Path, size: int
) -> None:
    sources = module.find_sources(folder)
    os.truncate(folder / "b.txt", size)
    with pytest.raises(PackedFilesError, match=r"b\.txt changed while it was packed"):
        pack(folder, tmp_path / "out.tar", sources=sources)
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def test_an_error_leaves_the_old_archive_and_its_index(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tar"
    pack(folder, out)
    before = sorted((one.name, one.stat().st_mtime_ns) for one in tmp_path.iterdir())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", fail)
    with pytest.raises(OSError, match="No space left"):
        pack(folder, out, force=True)
    assert sorted((one.name, one.stat().st_mtime_ns) for one in tmp_path.iterdir()) == before
    assert index_path(out).exists()


def test_progress_counts_all_bytes(tmp_path: Path, folder: Path) -> None:
    seen: list[int] = []
    pack(folder, tmp_path / "out.tar", progress=seen.append)
    assert sum(seen) == sum(map(len, loose(folder).values()))
