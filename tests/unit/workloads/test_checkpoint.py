from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.runtime import storage
from convoy_workloads.runtime.checkpoint import Checkpoints
from convoy_workloads.runtime.errors import BAD_DATA, DataError, exit_code_of
from convoy_workloads.runtime.lineage import Generation, Record

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


def opened(root: Path) -> Checkpoints:
    return Checkpoints(root, 2, 0, 0.0)


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
    chosen = checkpoints.choose()
    assert chosen is not None
    assert chosen.generation == OLDER
    first = commit(checkpoints, 15, OLDER)
    second = commit(checkpoints, 25, first)
    assert storage.generations(root) == [NEWER, first, second]


def test_a_record_that_turns_unreadable_is_not_deleted(root: Path) -> None:
    checkpoints = opened(root)
    checkpoints.choose()
    (root / NEWER.name / storage.COMMIT).write_bytes(b"?")
    newest = commit(checkpoints, 25, NEWER)
    assert storage.generations(root) == [NEWER, newest]
