"""Tests of the models on a node's disk: room, use by pods, and what an earlier agent has left."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from convoy_agents.models.folders import ModelFolders
from convoy_agents.models.source import Failure, ModelError

SIZE = 1000


def load(folders: ModelFolders, key: str, size: int = SIZE) -> None:
    with folders.loading(key, size) as folder:
        path = folder / "shards" / "0" / "gen-1-7"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * size)
        (folder / "record.json").write_bytes(b"")


def kept(root: Path) -> set[str]:
    return {one.name for one in (root / "generations").iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolders:
    return ModelFolders(tmp_path, limit=2 * SIZE + 100)


def test_a_model_is_complete_only_after_its_download(tmp_path: Path, folders: ModelFolders) -> None:
    with pytest.raises(OSError, match="broken"), folders.loading("a", SIZE) as folder:
        (folder / "part").write_bytes(b"x")
        assert not folders.has("a")
        raise OSError("broken")
    assert kept(tmp_path) == set() and folders.used_bytes == 0
    load(folders, "a")
    assert folders.has("a") and folders.used_bytes == SIZE


def test_a_pod_gets_links_that_nobody_can_write(tmp_path: Path, folders: ModelFolders) -> None:
    load(folders, "a")
    assert not folders.hand_over("a", "p1"), "the kubelet has not requested the volume yet"
    folder = folders.prepare_pod("p1")
    assert folders.hand_over("a", "p1") and folders.handed_over("p1")
    shard = folder / "shards" / "0" / "gen-1-7"
    assert shard.stat().st_nlink == 2 and stat.S_IMODE(shard.stat().st_mode) == 0o444
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    with pytest.raises(FileNotFoundError):
        folders.hand_over("unknown", "p1")


def test_an_interrupted_hand_over_is_completed(folders: ModelFolders) -> None:
    load(folders, "a")
    folder = folders.prepare_pod("p1")
    folders.hand_over("a", "p1")
    (folder / "record.json").unlink()
    assert not folders.handed_over("p1")
    folders.hand_over("a", "p1")
    assert folders.handed_over("p1")


def test_a_model_in_use_stays_and_an_unused_one_goes_after_a_while(
    tmp_path: Path, folders: ModelFolders
) -> None:
    for key, pod in (("a", "p1"), ("b", "p2")):
        load(folders, key)
        folders.prepare_pod(pod)
        folders.hand_over(key, pod)
        os.utime(tmp_path / "generations" / key, (0, 0))
    folders.remove_unused(keep_seconds=100)
    assert kept(tmp_path) == {"a", "b"}
    folders.remove_pod("p2")
    folders.remove_unused(keep_seconds=100)
    assert kept(tmp_path) == {"a", "b"}, "the time begins when the last pod leaves"
    folders.remove_unused(keep_seconds=0)
    assert kept(tmp_path) == {"a"}


def test_room_is_made_at_the_expense_of_the_model_that_was_unused_longest(
    tmp_path: Path, folders: ModelFolders
) -> None:
    for at, key in enumerate(("b", "a")):
        load(folders, key)
        os.utime(tmp_path / "generations" / key, (at, at))
    load(folders, "c")
    assert kept(tmp_path) == {"a", "c"}


def test_a_removal_that_is_interrupted_leaves_no_part_of_a_model(
    tmp_path: Path, folders: ModelFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folders, "a")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    folders.remove_unused(keep_seconds=0)
    assert not folders.has("a")
    monkeypatch.undo()
    again = ModelFolders(tmp_path)
    again.recover(set())
    assert kept(tmp_path) == set()


def test_a_model_is_refused_if_those_in_use_leave_no_room(tmp_path: Path, folders: ModelFolders) -> None:
    for key in ("a", "b"):
        load(folders, key)
        folders.prepare_pod(key)
        folders.hand_over(key, key)
    with pytest.raises(ModelError, match=r"agent\.models\.limitGiB") as raised, folders.loading("c", SIZE):
        pass
    assert raised.value.failure is Failure.NOT_STORED and not raised.value.transient
    assert kept(tmp_path) == {"a", "b"}


def test_a_cancelled_download_does_not_disturb_the_next_one(tmp_path: Path, folders: ModelFolders) -> None:
    with pytest.raises(OSError, match="late"), folders.loading("a", SIZE):
        load(folders, "a")
        raise OSError("late")
    assert kept(tmp_path) == {"a"} and folders.has("a")
    load(folders, "a")
    assert kept(tmp_path) == {"a"} and folders.used_bytes == SIZE


def test_running_downloads_count(folders: ModelFolders) -> None:
    with folders.loading("a", SIZE), folders.loading("b", SIZE):
        assert folders.used_bytes == 2 * SIZE
        with pytest.raises(ModelError), folders.loading("c", SIZE):
            pass


def test_the_disk_keeps_its_reserve(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    folders = ModelFolders(tmp_path, reserve=disk.f_blocks * disk.f_frsize)
    with pytest.raises(ModelError, match=r"must stay free \(agent\.models\.reserveGiB"):
        load(folders, "a")


@pytest.mark.parametrize(("percent", "fits"), [(49, True), (50, False)])
def test_the_disk_keeps_a_share_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, percent: int, fits: bool
) -> None:
    """The disk has 100 blocks, and 50 are free. The reserve in bytes is smaller than a block."""
    disk = SimpleNamespace(f_blocks=100, f_bavail=50, f_frsize=SIZE)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    folders = ModelFolders(tmp_path, reserve=1, reserve_percent=percent)
    with contextlib.nullcontext() if fits else pytest.raises(ModelError, match="reservePercent"):
        load(folders, "a")


def test_another_agent_keeps_only_what_pods_use(tmp_path: Path, folders: ModelFolders) -> None:
    for key, pod in (("a", "p1"), ("b", "p2")):
        load(folders, key)
        folders.prepare_pod(pod)
        folders.hand_over(key, pod)
    (tmp_path / "generations" / "c.new" / "shards").mkdir(parents=True)
    again = ModelFolders(tmp_path)
    again.recover({"p1"})
    assert kept(tmp_path) == {"a", "b"} and [one.name for one in (tmp_path / "pods").iterdir()] == ["p1"]
    again.remove_unused(0)
    assert kept(tmp_path) == {"a"} and again.handed_over("p1")
    again.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_model_from_before_a_reboot_is_not_trusted(tmp_path: Path) -> None:
    load(ModelFolders(tmp_path, boot=lambda: "first"), "a")
    ModelFolders(tmp_path, boot=lambda: "first").recover(set())
    assert kept(tmp_path) == {"a"}
    ModelFolders(tmp_path, boot=lambda: "second").recover(set())
    assert kept(tmp_path) == set()


def test_nothing_is_created_on_a_node_without_models(tmp_path: Path) -> None:
    folders = ModelFolders(tmp_path / "models")
    folders.recover(set())
    folders.remove_unused()
    folders.remove_pod("p1")
    folders.clear()
    assert folders.used_bytes == 0 and not (tmp_path / "models").exists()
