"""Tests that the fast scan finds what the standard library and GNU tar see in an archive."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.workloads.data.packed_files.archives import FORMATS, Entry, entries, made, oracle

from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.packed_files import PackedFiles

RANDOM = settings(
    max_examples=cases(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def contents(path: Path) -> dict[str, bytes]:
    """Return all files that PackedFiles finds."""
    files = PackedFiles(path)
    return dict(zip(files.names, files, strict=True))


def written(folder: Path, data: bytes, name: str = "a.tar") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@RANDOM
@given(listed=entries(), form=st.sampled_from(FORMATS))
def test_the_files_are_those_that_the_standard_library_finds(
    tmp_path: Path, listed: list[Entry], form: int
) -> None:
    try:
        data = made(listed, form)
    except ValueError:
        assume(False)  # The format ustar has no room for the name.
    path = written(tmp_path, data)
    assert list(contents(path).items()) == list(oracle(path).items())


@RANDOM
@given(listed=entries(), form=st.sampled_from(FORMATS), cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_archive_is_refused(tmp_path: Path, listed: list[Entry], form: int, cut: float) -> None:
    try:
        data = made(listed, form)
    except ValueError:
        assume(False)
    end = len(data.rstrip(b"\0"))
    kept = data[: int(cut * (end + 512))]
    path = written(tmp_path, kept)
    assume(len(kept) <= end)
    with pytest.raises(PackedFilesError, match=r"a\.tar"):
        PackedFiles(path)


@RANDOM
@given(
    listed=entries(),
    form=st.sampled_from(FORMATS),
    block=st.integers(0, 10**6),
    changes=st.lists(st.tuples(st.integers(0, 511), st.integers(0, 255)), min_size=1, max_size=4),
    repair=st.booleans(),
)
def test_a_damaged_archive_is_read_or_refused_with_its_place(
    tmp_path: Path,
    listed: list[Entry],
    form: int,
    block: int,
    changes: Sequence[tuple[int, int]],
    repair: bool,
) -> None:
    try:
        data = bytearray(made(listed, form))
    except ValueError:
        assume(False)
    start = block % (len(data) // 512) * 512
    for at, value in changes:
        data[start + at] = value
    if repair:
        # Also a damaged header whose checksum is right must not end in another error.
        blanked = data[start : start + 148] + b" " * 8 + data[start + 156 : start + 512]
        data[start + 148 : start + 156] = b"%06o\0 " % sum(blanked)
    path = written(tmp_path, bytes(data))
    try:
        contents(path)
    except PackedFilesError as error:
        assert str(path) in str(error)


def test_a_changed_byte_of_a_header_is_found(tmp_path: Path) -> None:
    data = bytearray(made([Entry("a", data=b"1" * 600), Entry("b", data=b"2")]))
    second = data.index(b"b\0")
    for at in range(512):
        if not 148 <= at < 156:
            changed = bytearray(data)
            changed[second + at] ^= 0x20
            with pytest.raises(PackedFilesError, match=f"byte {second}: .*its checksum is wrong"):
                PackedFiles(written(tmp_path, bytes(changed)))


def test_signed_checksums_of_old_programs_are_right(tmp_path: Path) -> None:
    data = bytearray(made([Entry("ä", data=b"1")], tarfile.GNU_FORMAT))
    signed = sum(one - 256 if one > 127 else one for one in data[:148] + b" " * 8 + data[156:512])
    data[148:156] = b"%06o\0 " % signed
    assert contents(written(tmp_path, bytes(data))) == {"ä": b"1"}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_file_above_8_gib_is_skipped_by_its_size(tmp_path: Path, form: int) -> None:
    size = 9 << 30
    header = tarfile.TarInfo("large")
    header.size = size
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        file.write(header.tobuf(form))
        file.seek(size, os.SEEK_CUR)
        file.write(made([Entry("small", data=b"1")]))
    files = PackedFiles(path)
    assert dict(zip(files.names, files.sizes, strict=True)) == {"large": size, "small": 1}
    assert files["small"] == b"1"


@pytest.mark.parametrize("size", [b"\xff" * 12, b"-0000000001\0", b"99999999999\0"])
def test_a_size_that_is_no_size_is_refused(tmp_path: Path, size: bytes) -> None:
    data = bytearray(made([Entry("a", data=b"1")]))
    data[124:136] = size
    data[148:156] = b"%06o\0 " % sum(data[:148] + b" " * 8 + data[156:512])
    with pytest.raises(PackedFilesError, match=r"byte 0: .*its size is"):
        PackedFiles(written(tmp_path, bytes(data)))


def test_global_records_of_pax_hold_for_all_entries(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(
        path, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "0123", "path": "x"}
    ) as one:
        one.addfile(tarfile.TarInfo("a"))
    assert contents(path) == oracle(path) == {"x": b""}


def test_counts_tell_of_other_entries_and_of_replaced_files(tmp_path: Path) -> None:
    listed = [
        Entry("a", data=b"old"),
        Entry("d", tarfile.DIRTYPE),
        Entry("s", tarfile.SYMTYPE, link="a"),
        Entry("p", tarfile.FIFOTYPE),
        Entry("a", data=b"newer"),
    ]
    files = PackedFiles(written(tmp_path, made(listed)))
    assert (files.names, files["a"], files.replaced) == (["a"], b"newer", 1)
    assert files.skipped == {"directories": 1, "symbolic links": 1, "pipes": 1}


def test_a_hard_link_to_a_missing_file_is_refused(tmp_path: Path) -> None:
    data = made([Entry("b", tarfile.LNKTYPE, link="a")])
    with pytest.raises(PackedFilesError, match="'b' is a hard link to 'a', which is not before it"):
        PackedFiles(written(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"no archive " * 100, "is no tar archive"),
        (b"\x1f\x8b" + bytes(600), "compressed with gzip: unpack it with `gunzip`"),
        (b"BZh91AY" + bytes(600), "compressed with bzip2"),
        (b"\xfd7zXZ\0" + bytes(600), "compressed with xz"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "compressed with zstd"),
    ],
)
def test_another_file_is_refused_with_the_reason(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(PackedFilesError, match=message):
        PackedFiles(written(tmp_path, data))


def test_archives_that_cat_has_joined_are_refused(tmp_path: Path) -> None:
    one, other = made([Entry("a", data=b"1")]), made([Entry("b", data=b"2")])
    with pytest.raises(PackedFilesError, match=f"byte {len(one)}: .*joined by `cat`"):
        PackedFiles(written(tmp_path, one + other))


def tar(*arguments: str | Path) -> None:
    """Run GNU tar."""
    subprocess.run(["tar", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with long and unusual names, links, an empty file and a large one."""
    folder = tmp_path / "data"
    deep = folder / ("d" * 90) / ("e" * 60)
    deep.mkdir(parents=True)
    (deep / ("f" * 60)).write_bytes(b"deep")
    (folder / "empty").write_bytes(b"")
    (folder / "größe.txt").write_bytes(b"umlaut")
    (folder / "large").write_bytes(os.urandom(700_000))
    (folder / "one").write_bytes(b"one")
    (folder / "other").hardlink_to(folder / "one")
    (folder / "link").symlink_to("one")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize("form", ["oldgnu", "gnu", "ustar", "pax"])
def test_archives_of_gnu_tar(tmp_path: Path, folder: Path, form: str) -> None:
    path = tmp_path / "a.tar"
    tar("-cf", path, f"--format={form}", "-C", folder, ".")
    files = PackedFiles(path)
    expected = {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and not one.is_symlink()
    }
    assert dict(zip(files.names, files, strict=True)) == expected
    assert files.skipped == {"directories": 3, "symbolic links": 1, "pipes": 1}


def test_an_archive_in_the_format_v7(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "a.tar"
    tar("-cf", path, "--format=v7", "-C", folder, "empty", "one", "large")
    assert contents(path) == {name: (folder / name).read_bytes() for name in ("empty", "one", "large")}


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_files_are_refused(tmp_path: Path, form: str) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(1 << 22)
        file.seek(1 << 21)
        file.write(b"1")
    tar("-cSf", tmp_path / "a.tar", f"--format={form}", "-C", tmp_path, "holes")
    with pytest.raises(PackedFilesError, match=r"a\.tar, byte .*sparse: make the archive without"):
        PackedFiles(tmp_path / "a.tar")


def test_an_appended_file_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for data in (b"old", b"newer"):
        (tmp_path / "one").write_bytes(data)
        tar("-rf", path, "-C", tmp_path, "one")
    files = PackedFiles(path)
    assert (list(files), files.replaced) == ([b"newer"], 1)


def test_labels_and_directories_of_incremental_archives_are_skipped(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "a.tar"
    tar("-cf", path, "--label=name", f"--listed-incremental={tmp_path / 'state'}", "-C", folder, ".")
    files = PackedFiles(path)
    assert files["one"] == files["other"] == b"one"
    assert files.skipped == {"labels": 1, "directories": 3, "symbolic links": 1, "pipes": 1}
