"""Tests of a folder as a store: disk errors, crashes and durability."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.stores.places import (
    GRACE,
    HOME,
    chunk_of,
    noise,
    saved,
    volume_place,
)

from convoy_agents.tiercheck.stores.errors import NotMounted, StoreError
from convoy_agents.tiercheck.stores.probe import probe
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint.records import Branch
from convoy_controllers.checkpoint.retention import Keep


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_disk_error_is_reported_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    place = volume_place(tmp_path)
    store = place.store()
    store.put_chunk(chunk_of(noise(1)), noise(1))
    before = place.keys()

    def fail(*args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(StoreError) as failed:
            store.put_chunk(chunk_of(noise(2)), noise(2))
    assert failed.value.errno == code and not failed.value.retriable
    assert str(tmp_path) in str(failed.value) and "; " in str(failed.value)
    assert place.keys() == before
    store.put_chunk(chunk_of(noise(2)), noise(2))


def test_a_missing_volume_is_an_error_and_not_an_empty_store(tmp_path: Path) -> None:
    store = Store(Volume(tmp_path / "gone"), "team", "uid-1")
    for use in (
        lambda: store.put_chunk(chunk_of(noise(1)), noise(1)),
        lambda: store.get_chunk(chunk_of(noise(1))),
        store.inventory,
        lambda: store.touch(["0" * 32]),
    ):
        with pytest.raises(StoreError, match="not mounted") as failed:
            use()
        assert failed.value.errno == errno.ENOENT
    assert not (tmp_path / "gone").exists()


def test_the_subfolder_of_a_volume_is_created_and_other_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    volume = Volume(tmp_path, "clusters/one", claim="disk")
    assert volume.folders("") == set() and volume.get("a/b") is None
    volume.put("a/b", b"here")
    assert (tmp_path / "clusters" / "one" / "a" / "b").read_bytes() == b"here"
    assert volume.folders("") == {"a"} and volume.where == "claim disk, folder clusters/one"
    assert {path.name for path in tmp_path.iterdir()} == {"other", "clusters"}


def test_an_unmounted_folder_is_not_written_to(tmp_path: Path) -> None:
    there = [False]
    volume = Volume(tmp_path, "clusters/one", claim="disk", mounted=lambda root: there[0])
    for use in (
        lambda: volume.put("a/b", b"here"),
        lambda: volume.create("a/b", b"here"),
        lambda: volume.get("a/b"),
        lambda: volume.names("a"),
        lambda: volume.touch("a/b"),
        lambda: probe(volume),
    ):
        with pytest.raises(NotMounted, match="claim disk, folder clusters/one: it is not mounted at"):
            use()
    assert not list(tmp_path.iterdir())
    there[0] = True
    assert probe(volume).conditional


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_file_system_without_hard_links_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    found = probe(Volume(tmp_path))
    assert (found.conditional, found.listing, found.touch) == (False, True, True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_one_of_two_concurrent_creates_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def meeting(real: Callable[..., Any]) -> Callable[..., Any]:
        def met(*args: Any, **more: Any) -> Any:
            both.wait(20)
            return real(*args, **more)

        return met

    for name in ("link", "replace", "rename"):
        monkeypatch.setattr(os, name, meeting(getattr(os, name)))
    volume = Volume(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda data: volume.create("a/b", data), [b"0", b"1"]))
    assert sorted(done) == [False, True]
    assert volume.get("a/b") == str(done.index(True)).encode()


def test_a_reader_of_a_replaced_file_reads_the_old_content(tmp_path: Path) -> None:
    volume = Volume(tmp_path)
    volume.put("a/b", b"old")
    with (tmp_path / "a" / "b").open("rb") as file:
        volume.put("a/b", b"newer")
        assert file.read() == b"old"
    assert volume.get("a/b") == b"newer"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    Volume(tmp_path).put("a/b", noise(1))
    assert (tmp_path / "a" / "b").read_bytes() == noise(1)


def test_temporary_files_of_interrupted_writes_are_removed(tmp_path: Path) -> None:
    place = volume_place(tmp_path)
    store = place.store()
    saved(store, 1, noise(1))
    torn, going_on, foreign = ".torn.0123456789abcdef", ".going-on.0123456789abcdef", ".foreign"
    for name in (torn, going_on, foreign):
        (tmp_path / HOME / "chunks" / name).write_bytes(b"half")
    for name in (torn, foreign):
        place.age(f"{HOME}/chunks/{name}", 2 * GRACE)
    assert len(store.chunks()) == 1
    assert store.listing("chunks").unfinished == {torn: 4, going_on: 4}
    store.collect_garbage(Keep())
    assert place.held("chunks") == {chunk_of(noise(1)).digest, going_on, foreign}
    store.erase()
    assert place.held("chunks") == {foreign}


class Synced:
    """Records which files and folders are synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inodes: set[int] = set()
        real = os.fsync

        def fsync(fd: int) -> None:
            self.inodes.add(os.fstat(fd).st_ino)
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)

    def lacks(self, *paths: Path) -> list[Path]:
        return [path for path in paths if path.stat().st_ino not in self.inodes]


def test_an_existing_record_counts_only_after_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = volume_place(tmp_path).store()
    record = saved(store, 1, noise(1))
    store.put_branch(Branch(1))
    home = tmp_path / HOME
    synced = Synced(monkeypatch)
    assert store.commit(record)
    above = [home, home.parent, tmp_path]
    assert not synced.lacks(home / "records" / record.generation.name, home / "records", *above)
    synced.inodes.clear()
    assert store.put_branch(Branch(1))
    assert not synced.lacks(home / "branches" / "1", home / "branches", *above)
