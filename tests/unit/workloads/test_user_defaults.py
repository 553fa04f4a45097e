"""Tests of the home folders of users without an account. Integration tests of foreign images check real
access rights.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from convoy_workloads.launcher import user_defaults


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder to which this process cannot write, regardless of the user who runs the test."""
    old = tmp_path / "old"
    old.mkdir()
    usual = user_defaults._writable
    monkeypatch.setattr(
        user_defaults, "_writable", lambda folder: not str(folder).startswith(str(old)) and usual(folder)
    )
    return old


def links(folder: Path) -> dict[str, str]:
    """Return the targets of all symbolic links below the folder, by their path in the folder."""
    return {str(p.relative_to(folder)): str(p.readlink()) for p in folder.rglob("*") if p.is_symlink()}


def test_hidden_folders_are_created_and_other_entries_are_linked(unwritable: Path, tmp_path: Path) -> None:
    (unwritable / ".cache/torch/hub/checkpoints").mkdir(parents=True)
    (unwritable / ".cache/torch/hub/checkpoints/resnet.pth").touch()
    (unwritable / ".netrc").touch()
    (unwritable / "work/deep").mkdir(parents=True)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    for _ in range(2):
        user_defaults.link_home(str(fresh), str(unwritable))
    assert links(fresh) == {
        ".cache/torch/hub/checkpoints/resnet.pth": f"{unwritable}/.cache/torch/hub/checkpoints/resnet.pth",
        ".netrc": f"{unwritable}/.netrc",
        "work": f"{unwritable}/work",
    }


def test_a_volume_in_an_unwritable_home_is_linked_as_a_whole(
    unwritable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = unwritable / ".cache/huggingface"
    (volume / "hub").mkdir(parents=True)
    monkeypatch.setattr(user_defaults, "_writable", lambda folder: str(folder).startswith(str(volume)))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    user_defaults.link_home(str(fresh), str(unwritable))
    assert links(fresh) == {".cache/huggingface": str(volume)}


def test_the_number_of_links_is_bounded(
    unwritable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_defaults, "MAX_LINKS", 3)
    for number in range(5):
        (unwritable / f"file-{number}").touch()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    user_defaults.link_home(str(fresh), str(unwritable))
    assert sorted(links(fresh)) == ["file-0", "file-1", "file-2"]


def test_only_hidden_entries_of_the_root_directory_are_linked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "listdir", lambda folder: [".cache", "bin"] if folder == "/" else [])
    monkeypatch.setattr(os, "access", lambda *_: True)
    user_defaults.link_home(str(tmp_path), "/")
    assert links(tmp_path) == {".cache": "/.cache"}


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ("convoy", "convoy")),
        ({"USER": "ada"}, ("ada", "ada")),
        ({"LOGNAME": "a", "USER": "b"}, ("a", "b")),
    ],
)
def test_a_configured_user_name_is_kept(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], names: tuple[str, str]
) -> None:
    monkeypatch.setattr(user_defaults, "_has_account", lambda uid: False)
    lines = user_defaults.apply_defaults(environment)
    assert (environment["LOGNAME"], environment["USER"]) == names
    assert lines[0].endswith(f"has no account in this image, so USER is set to {names[1]}")


def test_without_the_module_pwd_there_is_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pwd", None)
    assert not user_defaults._has_account(os.getuid())


def test_an_unusable_replacement_home_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(user_defaults, "_has_account", lambda uid: True)
    environment = {"HOME": "relative", user_defaults.HOME_VARIABLE: str(tmp_path / "file")}
    lines = user_defaults.apply_defaults(environment)
    assert lines[0] == f"{tmp_path}/file cannot be used as HOME: Not a directory"
    assert environment["HOME"] == "relative"


def test_a_missing_home_is_created_if_possible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(user_defaults, "_has_account", lambda uid: True)
    environment = {"HOME": str(tmp_path / "a/b"), user_defaults.HOME_VARIABLE: str(tmp_path)}
    user_defaults.apply_defaults(environment)
    assert environment["HOME"] == str(tmp_path / "a/b")
    assert (tmp_path / "a/b").is_dir()
