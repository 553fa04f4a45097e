"""Tests of `convoy checkpoint` with a store on a mounted volume."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.unit.cli.saved_job import SavedJobStore, chunk_of, noise, shard

from convoy_agents.tiercheck.stores.volume import Volume

PART = "clusters/one"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    return made


@pytest.fixture
def saved(disk: Path, monkeypatch: pytest.MonkeyPatch) -> SavedJobStore:
    """Return a store that has two generations and a chunk of an interrupted upload."""
    # A store on a volume must work without the libraries for buckets.
    monkeypatch.setitem(sys.modules, "boto3", None)
    made = SavedJobStore(Volume(disk, PART), {"volume": {"claimName": "shared", "path": PART}}, monkeypatch)
    made.cluster.keys = {}
    made.save((1, 10), {"0": [noise(1), noise(2)]})
    made.save((1, 20), {"0": [noise(1), noise(3)]}, parent=(1, 10))
    made.put(shard((1, 30), [noise(4)]), [noise(4)])
    return made


def test_a_generation_is_listed_verified_and_restored(
    saved: SavedJobStore, disk: Path, tmp_path: Path
) -> None:
    found = saved.run("ls", "job", "--folder", str(disk))
    assert found.exit_code == 0 and found.output.splitlines()[-1].endswith("a restart of job reads 1/20.")
    found = saved.run("verify", "job", "--folder", str(disk))
    assert found.output == "job 1/20: 2 chunks (2.0Ki) read, all digests match\n"
    to = tmp_path / "out"
    done = saved.run("restore", "job", "--folder", str(disk), "--to", str(to), "--generation", "1/10")
    assert done.exit_code == 0, done.output
    assert (to / "shards" / "0" / "gen-1-10").read_bytes() == noise(1) + noise(2)
    (disk / PART / "team" / "uid-1" / "chunks" / chunk_of(noise(3)).digest).write_bytes(noise("other"))
    assert saved.run("verify", "job", "--folder", str(disk)).exit_code == 1


def test_old_parts_of_an_interrupted_upload_are_deleted(saved: SavedJobStore, disk: Path) -> None:
    lost = disk / PART / "team" / "uid-1" / "chunks" / chunk_of(noise(4)).digest
    for path in [path for path in disk.rglob("*") if path.is_file()]:
        os.utime(path, (0, path.stat().st_mtime - 7200))
    assert lost.is_file()
    done = saved.run("fsck", "s3", "--folder", str(disk), "--repair", "--yes")
    assert done.exit_code == 0 and "2 objects deleted" in done.output, done.output
    assert not lost.exists()
    assert saved.run("verify", "job", "--all", "--folder", str(disk)).exit_code == 0


def test_all_objects_of_a_job_are_deleted(saved: SavedJobStore, disk: Path) -> None:
    saved.cluster.about = None
    command = ("rm", "job", "--store", "s3", "--uid", "uid-1", "--yes")
    failed = saved.run(*command)
    assert failed.exit_code == 1 and "mount that volume here" in failed.output
    done = saved.run(*command, "--folder", str(disk))
    assert done.exit_code == 0 and "2 generations" in done.output, done.output
    assert not [path for path in disk.rglob("*") if path.is_file()]


def test_an_unfinished_blob_is_deleted_with_the_job(saved: SavedJobStore, disk: Path) -> None:
    saved.cluster.about = None
    command = ("rm", "job", "--store", "s3", "--uid", "uid-1", "--folder", str(disk), "--yes")
    assert saved.run(*command).exit_code == 0
    torn = disk / PART / "team" / "uid-1" / "chunks" / f".{'0' * 32}.{'1' * 16}"
    torn.parent.mkdir()
    torn.write_bytes(b"half")
    done = saved.run(*command)
    assert done.exit_code == 0 and "1 objects deleted" in done.output, done.output
    assert not torn.exists()
    assert "has nothing in the store" in saved.run(*command).output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "is on the volume of claim shared in namespace convoy-system: mount that volume here"),
        (["--operator-namespace", "ops"], "claim shared in namespace ops"),
        (["--folder", "nowhere"], "--folder nowhere: no such folder; the volume of claim shared"),
        (["--endpoint", "http://x"], "--endpoint is for a bucket; CheckpointStore s3 is on a volume"),
    ],
)
def test_without_the_volume_the_error_gives_advice(saved: SavedJobStore, words: list[str], text: str) -> None:
    for command in (["ls", "job"], ["verify", "job"], ["restore", "job", "--to", "out"], ["fsck", "s3"]):
        failed = saved.run(*command, *words)
        assert failed.exit_code == 1 and text in failed.output, failed.output


def test_another_volume_has_no_generation(saved: SavedJobStore, tmp_path: Path) -> None:
    failed = saved.run("verify", "job", "--folder", str(tmp_path))
    assert failed.exit_code == 1 and "the store has no generation of job" in failed.output
