from __future__ import annotations

import concurrent.futures
import threading
from pathlib import Path

import pytest
import torch

from convoy_workloads.runtime.errors import BAD_DATA, DataError, exit_code_of
from convoy_workloads.runtime.folder import snapshot, storage
from convoy_workloads.runtime.folder.checkpoints import FolderCheckpoints
from convoy_workloads.runtime.folder.records import CommitRecord
from convoy_workloads.runtime.generation import Generation

OLDER, NEWER = Generation(1, 10), Generation(1, 20)
DATA = "__0_0.distcp"


def save(root: Path, generation: Generation) -> None:
    folder = root / generation.name
    folder.mkdir()
    (folder / DATA).write_bytes(b"weights")
    (folder / storage.METADATA).write_bytes(b"index")
    files = storage.digests([folder / DATA])
    record = CommitRecord(generation, 1, "2.13.0", storage.digest(folder / storage.METADATA), files)
    storage.write_json(folder / storage.COMMIT, record.to_json())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkpoint folder with two committed generations."""
    save(tmp_path, OLDER)
    save(tmp_path, NEWER)
    return tmp_path


def opened(root: Path, incarnation: int = 2) -> FolderCheckpoints:
    return FolderCheckpoints(root, incarnation, 0, 0.0)


def chosen(root: Path, incarnation: int = 2) -> Generation | None:
    record = opened(root, incarnation).choose()
    return record.generation if record else None


def commit(checkpoints: FolderCheckpoints, step: int) -> Generation:
    """Save `step` as the only rank, and wait until the generation is committed."""
    staged = checkpoints.stage_last({"weights": torch.zeros(4)}, step)
    assert checkpoints.finish_last(staged)
    return Generation(checkpoints.incarnation, step)


def test_an_empty_folder_is_a_fresh_start(tmp_path: Path) -> None:
    assert chosen(tmp_path) is None
    assert chosen(tmp_path / "absent") is None


def test_an_unfinished_generation_is_skipped_and_deleted(root: Path) -> None:
    torn = root / "gen-1-30"
    torn.mkdir()
    (torn / DATA).write_bytes(b"half")
    checkpoints = opened(root)
    record = checkpoints.choose()
    assert record is not None and record.generation == NEWER
    newest = commit(checkpoints, 25)
    assert storage.generations(root) == [NEWER, newest]
    assert chosen(root, 3) == newest


@pytest.mark.parametrize("name", [DATA, storage.METADATA, storage.COMMIT])
def test_only_unreadable_checkpoints_are_no_fresh_start(root: Path, name: str) -> None:
    for generation in (OLDER, NEWER):
        (root / generation.name / name).write_bytes(b"?")
    with pytest.raises(DataError) as error:
        opened(root).choose()
    assert exit_code_of(error.value) == BAD_DATA
    assert all(str(part) in str(error.value) for part in (root, OLDER.name, NEWER.name, "delete the gen-*"))
    assert storage.generations(root) == [OLDER, NEWER]


@pytest.mark.parametrize("name", [DATA, storage.COMMIT])
def test_a_skipped_generation_is_not_deleted_in_the_same_run(root: Path, name: str) -> None:
    (root / NEWER.name / name).write_bytes(b"?")
    checkpoints = opened(root)
    record = checkpoints.choose()
    assert record is not None
    assert record.generation == OLDER
    first = commit(checkpoints, 15)
    assert storage.generations(root) == [OLDER, NEWER, first], "what can be read is what to fall back on"
    second = commit(checkpoints, 25)
    assert storage.generations(root) == [NEWER, first, second]


def test_a_record_that_becomes_unreadable_is_not_deleted(root: Path) -> None:
    checkpoints = opened(root)
    checkpoints.choose()
    (root / NEWER.name / storage.COMMIT).write_bytes(b"?")
    newest = commit(checkpoints, 25)
    assert NEWER in storage.generations(root)
    assert commit(checkpoints, 35) in storage.generations(root)
    assert storage.generations(root) == [NEWER, newest, Generation(2, 35)]


def test_the_newest_incarnation_is_read_from_the_folders(root: Path) -> None:
    assert storage.newest_incarnation(root) == 1
    (root / "gen-4-7").mkdir()
    (root / "gen-x-7").mkdir()
    assert storage.newest_incarnation(root) == 4
    assert storage.newest_incarnation(root / "absent") == 0


@pytest.mark.parametrize("where", ["records", "fault"])
def test_a_disk_error_does_not_count_as_corruption(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """If a temporary error made a restore skip the newest generation, that generation would be lost."""
    name = {"records": storage.COMMIT, "fault": DATA}[where]
    read, digest = Path.read_bytes, storage.digest

    def failing_read(path: Path) -> bytes:
        if path.name == name:
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", failing_read)
    monkeypatch.setattr(storage, "digest", lambda path: failing_read(path) and digest(path))
    with pytest.raises(OSError, match="Input/output"):
        opened(root).choose()
    monkeypatch.undo()
    assert chosen(root) == NEWER


def test_a_commit_is_valid_if_superseded_generations_cannot_be_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    checkpoints = opened(root)
    checkpoints.choose()
    monkeypatch.setattr(storage, "records", fails)
    newest = commit(checkpoints, 25)
    assert "COULD NOT BE DELETED" in capsys.readouterr().err
    monkeypatch.undo()
    assert storage.generations(root) == [OLDER, NEWER, newest]
    assert chosen(root, 3) == newest


@pytest.mark.parametrize("half", ["write", "seal"])
def test_a_failed_save_leaves_no_generation_and_does_not_end_the_training(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], half: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    checkpoints = opened(root)
    checkpoints.choose()
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, half, full)
        assert checkpoints.start({"weights": torch.zeros(4)}, 25)
        assert not checkpoints.settle()
    log = capsys.readouterr().err
    assert "CHECKPOINT gen-2-25 FAILED: OSError" in log and "would resume from an older one" in log
    assert chosen(root, 3) == NEWER
    newest = commit(checkpoints, 35)
    assert storage.generations(root) == [NEWER, newest]


def test_rank_0_commits_only_with_the_parts_of_all_ranks(root: Path) -> None:
    staged = snapshot.stage({"weights": torch.zeros(4)}, root, Generation(2, 25))
    staged.world = 2
    snapshot.write(staged)
    with pytest.raises(TimeoutError, match="a rank has not written its part"):
        snapshot.seal(staged, 0.0)
    assert chosen(root, 3) == NEWER


def test_a_rank_that_cannot_write_does_not_delay_other_ranks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    first, second = FolderCheckpoints(root, 2, 0, 0.0), FolderCheckpoints(root, 2, 1, 0.0)
    first.choose()
    staged = [one.stage_last({"weights": torch.zeros(4)}, 25) for one in (first, second)]
    staged[0].world = 2
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "parts", lambda _: None)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = pool.submit(first.finish_last, staged[0], 60.0)
            patch.setattr(snapshot, "write", full)
            assert not second.finish_last(staged[1], 60.0)
            assert not waits.result(timeout=30)
    assert chosen(root, 3) == NEWER


def test_another_rank_s_last_step_is_saved_once_rank_0_has_committed_it(root: Path) -> None:
    second = FolderCheckpoints(root, 1, 1, 0.0)
    staged = second.stage_last({"weights": torch.zeros(4)}, 30)
    assert not second.finish_last(staged, 0.0), "its part alone is no checkpoint"
    second._in_flight = second._done = NEWER
    assert second.finish_last(None, 0.0)


def test_the_wait_for_a_save_in_progress_respects_its_timeout(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, goes_on = opened(root), threading.Event()
    checkpoints.choose()
    monkeypatch.setattr(snapshot, "write", lambda _: goes_on.wait(60))
    monkeypatch.setattr(snapshot, "seal", lambda *_: None)
    assert checkpoints.start({"weights": torch.zeros(4)}, 25)
    assert checkpoints.stage_last({"weights": torch.zeros(4)}, 26, 0.1) is None
    assert not checkpoints.finish_last(None, 0.1)
    assert "DOES NOT SAVE STEP 26" in capsys.readouterr().err
    goes_on.set()
    checkpoints.settle()


def test_files_of_failed_saves_are_deleted_before_the_next_save(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = root / "gen-1-30"
    left.mkdir()
    (left / DATA).write_bytes(b"half")
    checkpoints = opened(root)
    checkpoints.choose()

    def full(*_: object) -> None:
        assert not left.exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "write", full)
    assert not checkpoints.finish_last(checkpoints.stage_last({"weights": torch.zeros(4)}, 25))
    assert storage.generations(root)[:2] == [OLDER, NEWER] and not left.exists()


def test_a_step_that_is_saved_is_not_saved_again(root: Path) -> None:
    checkpoints = opened(root)
    checkpoints.choose()
    newest = commit(checkpoints, 25)
    (root / newest.name / storage.COMMIT).touch()
    before = (root / newest.name / storage.COMMIT).stat().st_mtime_ns
    assert commit(checkpoints, 25) == newest
    assert not checkpoints.start({"weights": torch.ones(4)}, 25)
    assert (root / newest.name / storage.COMMIT).stat().st_mtime_ns == before
