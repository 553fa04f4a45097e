from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.folder.records import CommitRecord
from convoy_workloads.runtime.generation import Generation


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, CommitRecord]:
    """A checkpoint folder with one committed generation of two files."""
    folder = tmp_path / "gen-2-30"
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(b"weights" * 100)
    (folder / "__1_0.distcp").write_bytes(b"moments" * 100)
    (folder / storage.METADATA).write_bytes(b"index")
    files = storage.digests(folder / name for name in ("__0_0.distcp", "__1_0.distcp"))
    record = CommitRecord(Generation(2, 30), 2, "2.13.0", storage.digest(folder / storage.METADATA), files)
    storage.write_json(folder / storage.COMMIT, record.to_json())
    return tmp_path, record


def test_a_record_is_read_back(saved: tuple[Path, CommitRecord]) -> None:
    assert storage.records(saved[0]) == ([saved[1]], {})


def test_a_generation_without_commit_does_not_exist(saved: tuple[Path, CommitRecord]) -> None:
    root, _ = saved
    (root / "gen-3-40").mkdir()
    assert [one.generation for one in storage.records(root)[0]] == [Generation(2, 30)]
    assert storage.generations(root) == [Generation(2, 30), Generation(3, 40)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"incarnation": 2}'])
def test_an_unreadable_record_is_reported(saved: tuple[Path, CommitRecord], text: str) -> None:
    root, _ = saved
    (root / "gen-2-30" / storage.COMMIT).write_text(text)
    found, complaints = storage.records(root)
    assert found == []
    assert list(complaints) == [Generation(2, 30)]


def test_a_record_of_another_generation_is_reported(saved: tuple[Path, CommitRecord]) -> None:
    root, _ = saved
    (root / "gen-2-30").rename(root / "gen-2-31")
    complaint = f"{root}/gen-2-31/COMMIT.json names generation gen-2-30"
    assert storage.records(root) == ([], {Generation(2, 31): complaint})


@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "grow"])
def test_one_of_the_verifying_ranks_detects_damage_to_any_file(
    saved: tuple[Path, CommitRecord], name: str, damage: str
) -> None:
    root, record = saved
    folder = root / "gen-2-30"
    assert [storage.find_fault(folder, record, share, 2) for share in range(2)] == ["", ""]
    path = folder / name
    data = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        data[0] ^= damage == "flip"
        path.write_bytes(data[:-1] if damage == "cut" else data + b"x" * (damage == "grow"))
    faults = [storage.find_fault(folder, record, share, 2) for share in range(2)]
    assert sum(name in fault for fault in faults) == 1


def test_an_atomic_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    storage.write_atomic(tmp_path / "a", b"one")
    storage.write_atomic(tmp_path / "a", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"two")]


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write_atomic(tmp_path / "a", b"one")
    monkeypatch.setattr(storage.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        storage.write_atomic(tmp_path / "a", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"one")]


def test_a_removed_generation_does_not_exist(saved: tuple[Path, CommitRecord]) -> None:
    root, record = saved
    storage.remove(root, record.generation)
    assert list(root.iterdir()) == []
    storage.remove(root, record.generation)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")
def test_a_folder_without_write_permission_is_a_data_error(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        os.setuid(65532)
        try:
            storage.ensure_writable(shut / "job")
        except DataError as error:
            os._exit(7 if "uid 65532" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    storage.ensure_writable(shut / "job")
    assert list((shut / "job").iterdir()) == []


def test_the_last_process_of_a_run_releases_the_folder_lock(tmp_path: Path) -> None:
    with storage.locked(tmp_path) as lock:
        with pytest.raises(storage.InUse, match=str(tmp_path)), storage.locked(tmp_path):
            pass
        left_behind = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with pytest.raises(storage.InUse), storage.locked(tmp_path):
        pass
    left_behind.communicate()
    with storage.locked(tmp_path):
        pass
