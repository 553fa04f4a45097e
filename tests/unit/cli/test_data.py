"""Tests of `convoy data pack` and `convoy data index`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy_workloads.data.packed_files import packed_files as module
from convoy_workloads.data.packed_files.packed_files import PackedFiles


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["data", *map(str, arguments)])
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "cats").mkdir(parents=True)
    for name in ("cats/1.jpg", "cats/2.jpg", "one"):
        (folder / name).write_bytes(name.encode() * 100)
    return folder


def refuse_scan(*_: object) -> None:
    raise AssertionError("the archive was scanned, although it has an index")


def test_a_folder_is_packed_with_an_index(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tar"
    assert run("pack", folder, out) == (0, f"{out}: 3 files, 2.2Ki\n")
    monkeypatch.setattr(module, "scan", refuse_scan)
    assert PackedFiles(out)["cats/2.jpg"] == b"cats/2.jpg" * 100
    assert run("pack", folder, out) == (1, f"error: {out} already exists\n")
    assert run("pack", folder, out, "--force")[0] == 0


def test_several_archives_are_named(tmp_path: Path, folder: Path) -> None:
    code, text = run("pack", folder, tmp_path / "out.tar", "--archives", "2")
    assert (code, text) == (
        0,
        f"{tmp_path}/out-0.tar: 2 files, 2.0Ki\n{tmp_path}/out-1.tar: 1 file, 300\n",
    )


def test_an_archive_of_gnu_tar_gets_an_index(tmp_path: Path, folder: Path) -> None:
    (folder / "link").symlink_to("one")
    out = tmp_path / "out.tar"
    for option in ("-cf", "-rf"):
        subprocess.run(["tar", option, out, "-C", folder, "."], check=True)
    assert run("index", out) == (
        0,
        f"{out}: 3 files, 2.2Ki\n  left out: 4 directories\n  left out: 2 symbolic links\n"
        "  replaced by a later file of the same name: 3\n",
    )
    assert (tmp_path / "out.tar.index").exists()


def test_errors_name_the_path(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(b"\x1f\x8b" + bytes(600))
    code, text = run("index", tmp_path / "bad.tar")
    assert (code, text) == (
        1,
        f"error: {tmp_path}/bad.tar is compressed with gzip: unpack it with `gunzip` first\n",
    )
    missing = tmp_path / "missing"
    assert run("index", missing) == (1, f"error: {missing}: No such file or directory\n")
    assert run("pack", missing, tmp_path / "out.tar") == (1, f"error: {missing} is no folder\n")
    assert run("pack", folder, missing / "out.tar") == (
        1,
        f"error: folder {missing} does not exist\n",
    )
    os.mkfifo(folder / "pipe")
    code, text = run("pack", folder, tmp_path / "out.tar")
    assert (code, text) == (1, f"error: {folder}/pipe is neither a file nor a folder\n")
