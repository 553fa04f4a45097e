"""Tests of a volume on which another program has placed symbolic links, pipes and devices."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.agents.stores.places import (
    noise,
)

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.volume import Volume

Planted = Callable[[Path, Path], None]


def link_to_file(at: Path, outside: Path) -> None:
    at.symlink_to(outside / "file")


def link_to_nothing(at: Path, outside: Path) -> None:
    at.symlink_to(outside / "none")


def link_to_folder(at: Path, outside: Path) -> None:
    at.symlink_to(outside)


def pipe(at: Path, outside: Path) -> None:
    os.mkfifo(at)


def device(at: Path, outside: Path) -> None:
    try:
        os.mknod(at, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder that is not on the volume, with one file."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "file").write_bytes(noise(1))
    os.utime(made / "file", (1.0, 1.0))
    return made


def untouched(outside: Path) -> bool:
    found = (outside / "file").stat()
    return (
        [path.name for path in outside.iterdir()] == ["file"]
        and (outside / "file").read_bytes() == noise(1)
        and (found.st_mtime, found.st_nlink) == (1.0, 1)
    )


def uses(volume: Volume, key: str) -> list[Callable[[], object]]:
    return [
        lambda: volume.put(key, b"x"),
        lambda: volume.create(key, b"x"),
        lambda: volume.get(key),
        lambda: volume.get(key, (0, 4)),
        lambda: volume.touch(key),
        lambda: volume.remove(key),
    ]


@pytest.mark.parametrize("link", [link_to_folder, link_to_file, link_to_nothing, pipe, device])
@pytest.mark.parametrize("depth", range(5))
def test_a_symlink_in_place_of_a_folder_is_not_followed(
    tmp_path: Path, outside: Path, depth: int, link: Planted
) -> None:
    root = tmp_path / "disk"
    parts = ["clusters", "one", "team", "uid-1", "chunks"]
    root.joinpath(*parts[:depth]).mkdir(parents=True)
    link(root.joinpath(*parts[: depth + 1]), outside)
    volume = Volume(root, "clusters/one")
    # The folder to which the link leads has a file of this name. An operation that follows the link would
    # therefore succeed.
    for use in (*uses(volume, "team/uid-1/chunks/file"), lambda: volume.names("team/uid-1/chunks")):
        with pytest.raises(StoreError, match="who else writes to the volume") as refused:
            use()
        assert not refused.value.retriable
    with contextlib.suppress(StoreError):
        volume.tidy("team/uid-1/chunks", 1e12)
    assert untouched(outside)


@pytest.mark.parametrize("link", [link_to_folder, link_to_file, link_to_nothing, pipe, device])
def test_a_non_regular_file_is_not_read_and_can_be_replaced(
    tmp_path: Path, outside: Path, link: Planted
) -> None:
    root = tmp_path / "disk"
    at = root / "a" / "file"
    at.parent.mkdir(parents=True)
    link(at, outside)
    volume = Volume(root)
    assert volume.names("a")[1:] == ({}, {}, {})
    assert volume.folders("a") == set()
    for use in uses(volume, "a/file")[1:5]:
        with pytest.raises(StoreError, match="who else writes to the volume"):
            use()
    volume.put("a/file", b"ours")
    assert volume.get("a/file") == b"ours" and not at.is_symlink()
    at.unlink()
    link(at, outside)
    volume.remove("a/file")
    assert not os.path.lexists(at) and untouched(outside)


def test_a_symlink_under_a_temporary_name_is_not_followed(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    (root / "a").mkdir(parents=True)
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 16)
    (root / "a" / f".file.{'0' * 16}").symlink_to(outside / "file")
    for use in (lambda: Volume(root).put("a/file", b"x"), lambda: Volume(root).create("a/file", b"x")):
        with pytest.raises(StoreError):
            use()
    assert untouched(outside)


def test_no_key_leads_above_a_volume(tmp_path: Path, outside: Path) -> None:
    volume = Volume(tmp_path / "outside")
    for use in uses(volume, "../file") + uses(volume, "a/../../file") + uses(volume, "/"):
        with pytest.raises(ValueError, match="names nothing below"):
            use()
    assert untouched(outside)
