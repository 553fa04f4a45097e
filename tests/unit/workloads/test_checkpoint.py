from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.runtime import storage
from convoy_workloads.runtime.checkpoint import Checkpoints
from convoy_workloads.runtime.errors import BAD_DATA, PEER_LOST, DataError, PeerLost, exit_code_of
from convoy_workloads.runtime.lineage import Branch, Generation, Record

OLDER, NEWER = Generation(1, 10), Generation(1, 20)


def save(root: Path, generation: Generation, parent: Generation | None = None) -> None:
    folder = root / generation.name
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(b"weights")
    (folder / storage.METADATA).write_bytes(b"index")
    files = storage.digests([folder / "__0_0.distcp"])
    record = Record(generation, parent, 1, "2.13.0", storage.digest(folder / storage.METADATA), files)
    storage.write_json(folder / storage.COMMIT, record.to_json())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two committed generations."""
    save(tmp_path, OLDER)
    save(tmp_path, NEWER, OLDER)
    return tmp_path


def opened(root: Path, incarnation: int = 2) -> Checkpoints:
    return Checkpoints(root, incarnation, 0, 0.0)


def chosen(root: Path, incarnation: int) -> Generation | None:
    record = opened(root, incarnation).choose()
    return record.generation if record else None


def commit(checkpoints: Checkpoints, step: int, parent: Generation) -> Generation:
    """A save of `checkpoints`, up to what happens once it is decided."""
    generation = Generation(checkpoints.incarnation, step)
    save(checkpoints.root, generation, parent)
    checkpoints.commits.prepare(generation, parent, seal=lambda: None, complete=lambda: True)
    return generation


def test_an_empty_folder_is_a_fresh_start(tmp_path: Path) -> None:
    assert opened(tmp_path).choose() is None
    assert opened(tmp_path / "absent").choose() is None


@pytest.mark.parametrize("name", ["__0_0.distcp", storage.METADATA, storage.COMMIT])
def test_checkpoints_of_which_none_can_be_read_are_no_fresh_start(root: Path, name: str) -> None:
    for generation in (OLDER, NEWER):
        (root / generation.name / name).write_bytes(b"?")
    with pytest.raises(DataError) as error:
        opened(root).choose()
    assert exit_code_of(error.value) == BAD_DATA
    assert all(str(part) in str(error.value) for part in (root, OLDER.name, NEWER.name, "delete the gen-*"))
    assert storage.generations(root) == [OLDER, NEWER]


@pytest.mark.parametrize("name", ["__0_0.distcp", storage.COMMIT])
def test_a_generation_that_was_passed_over_is_not_deleted_in_this_run(root: Path, name: str) -> None:
    (root / NEWER.name / name).write_bytes(b"?")
    checkpoints = opened(root)
    record = checkpoints.choose()
    assert record is not None
    assert record.generation == OLDER
    first = commit(checkpoints, 15, OLDER)
    second = commit(checkpoints, 25, first)
    assert storage.generations(root) == [NEWER, first, second]


LATE = Generation(1, 30)
"""Committed by a node that was cut off, after incarnation 2 had begun from NEWER."""


def test_a_late_commit_of_a_replaced_incarnation_is_not_restored(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(root, 2) == NEWER  # and it ends before its first commit
    save(root, LATE, NEWER)
    assert chosen(root, 3) == NEWER
    assert f"{LATE.name}: COMMITTED BY AN INCARNATION THAT HAD BEEN REPLACED" in capsys.readouterr().err
    assert storage.branches(root) == [Branch(2, NEWER), Branch(3, NEWER)]


def test_without_the_branch_it_would_be(root: Path) -> None:
    """The negative control: what the branch is for."""
    assert chosen(root, 2) == NEWER
    save(root, LATE, NEWER)
    for path in root.glob("branch-*.json"):
        path.unlink()
    assert chosen(root, 3) == LATE


def test_an_incarnation_that_began_afresh_is_followed_too(tmp_path: Path) -> None:
    assert chosen(tmp_path, 1) is None
    assert chosen(tmp_path, 2) is None
    save(tmp_path, OLDER)
    assert chosen(tmp_path, 3) is None


def test_the_first_commit_collects_dead_branches_and_what_others_said(root: Path) -> None:
    opened(root, 2).choose()
    save(root, LATE, NEWER)
    checkpoints = opened(root, 3)
    checkpoints.choose()
    newest = commit(checkpoints, 25, NEWER)
    assert storage.generations(root) == [NEWER, newest]
    assert storage.branches(root) == [Branch(3, NEWER)]
    assert chosen(root, 4) == newest


def test_who_has_been_replaced_neither_begins_nor_commits(root: Path) -> None:
    zombie = opened(root, 2)
    zombie.choose()
    assert chosen(root, 3) == NEWER
    with pytest.raises(PeerLost, match="incarnation 3 of this job has begun") as error:
        opened(root, 2).choose()
    assert exit_code_of(error.value) == PEER_LOST
    with pytest.raises(PeerLost):
        zombie._seal(None)
    assert zombie.commits.stale
    assert storage.branches(root)[0] == Branch(2, NEWER)


def test_a_volume_that_takes_no_branch_does_not_end_the_training(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_json", full)
    assert chosen(root, 2) == NEWER
    assert "DOES NOT TAKE the beginning of incarnation 2" in capsys.readouterr().err


def test_where_it_began_is_said_later_when_the_volume_takes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    checkpoints = opened(root, 2)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_json", full)
        checkpoints.choose()
    assert storage.branches(root) == []
    checkpoints._tell()
    assert storage.branches(root) == [Branch(2, NEWER)]


def test_it_begins_before_it_looks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was replaced may commit until then, and not after."""
    zombie, seen = opened(root, 1), []

    def look(folder: Path) -> tuple[list[Record], dict[Generation, str]]:
        with pytest.raises(PeerLost):
            zombie._seal(None)
        seen.append(storage.branches(folder))
        return records(folder)

    records = storage.records
    monkeypatch.setattr(storage, "records", look)
    assert chosen(root, 2) == NEWER
    assert seen == [[]]


def test_a_generation_collected_while_it_is_read_is_looked_for_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last commit of a run that was replaced at that moment."""
    fault, calls = storage.fault, []

    def collected(folder: Path, record: Record, *share: int) -> str:
        if not calls:
            save(root, LATE, NEWER)
            for old in (OLDER, NEWER):
                storage.remove(root, old)
        calls.append(record.generation)
        return fault(folder, record, *share)

    monkeypatch.setattr(storage, "fault", collected)
    assert chosen(root, 2) == LATE
    assert calls == [NEWER, OLDER, LATE]


def test_generations_that_vanish_again_and_again_are_no_fresh_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = storage.records(root)
    monkeypatch.setattr(storage, "records", lambda _: records)
    for old in (OLDER, NEWER):
        storage.remove(root, old)
    with pytest.raises(PeerLost, match="deletes the generations"):
        opened(root, 2).choose()


def test_incarnations_are_counted_from_branches_too(root: Path) -> None:
    assert storage.newest_incarnation(root) == 1
    opened(root, 4).choose()
    (root / "branch-x.json").write_text("none of ours")
    assert storage.newest_incarnation(root) == 4
    assert storage.newest_incarnation(root / "absent") == 0


def test_a_record_that_turns_unreadable_is_not_deleted(root: Path) -> None:
    checkpoints = opened(root)
    checkpoints.choose()
    (root / NEWER.name / storage.COMMIT).write_bytes(b"?")
    newest = commit(checkpoints, 25, NEWER)
    assert storage.generations(root) == [NEWER, newest]


@pytest.mark.parametrize("where", ["records", "branches", "fault"])
def test_a_volume_that_does_not_answer_is_not_taken_for_corrupt(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Passed over for a moment's trouble, the newest generation would be a dead branch for good."""
    opened(root, 2).choose()
    name = {"records": storage.COMMIT, "branches": "branch-2.json", "fault": "__0_0.distcp"}[where]
    read, digest = Path.read_bytes, storage.digest

    def answer(path: Path) -> bytes:
        if path.name == name:
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", answer)
    monkeypatch.setattr(storage, "digest", lambda path: answer(path) and digest(path))
    with pytest.raises(OSError, match="Input/output"):
        opened(root, 3).choose()
    monkeypatch.undo()
    assert chosen(root, 4) == NEWER


def test_a_commit_stands_although_what_it_supersedes_cannot_be_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    checkpoints = opened(root)
    checkpoints.choose()
    monkeypatch.setattr(storage, "records", fails)
    newest = commit(checkpoints, 25, NEWER)
    assert checkpoints.commits.wait(newest, 0) == "committed"
    assert "what is superseded is still there" in capsys.readouterr().err
