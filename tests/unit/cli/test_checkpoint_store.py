"""Tests of `convoy checkpoint ls`, `verify` and `restore` with a store that is reached over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.stores.test_encoded import AlwaysEncode, numbers
from tests.unit.cli.saved_job import Bucket, chunk_of, job, noise, shard

from convoy.cli.checkpoint.store_access import connect, install_advice, no_store_reason
from convoy.client import ApiError, Client, Forbidden, NotFound
from convoy_agents.tiercheck.stores.store import Store
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch

MARKS = {
    "incarnation": 2,
    "step": 30,
    "tier": "remote",
    "time": "2026-01-01T11:00:00Z",
    "watermarks": {
        "local": {"incarnation": 2, "step": 40, "time": "2026-01-01T12:00:00Z"},
        "remote": {"incarnation": 2, "step": 30, "time": "2026-01-01T11:00:00Z"},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(f"http://127.0.0.1:{server}", monkeypatch)


def filled(bucket: Bucket) -> None:
    """Save three generations. Generations 1/20 and 2/15 both continue 1/10, and 1/20 is not in the lineage
    of the run.
    """
    bucket.save((1, 10), {"0": [noise(1), noise(2)], "1": [noise(3)]})
    bucket.save((1, 20), {"0": [noise(1), noise(4)], "1": [noise(3)]}, parent=(1, 10))
    bucket.store.put_branch(Branch(2, Generation(1, 10)))
    bucket.save((2, 15), {"0": [noise(1), noise(5)], "1": [noise(6)]}, parent=(1, 10))


# Tests of ls.


def test_an_empty_store_has_no_generation(bucket: Bucket) -> None:
    found = bucket.run("ls", "job")
    assert found.exit_code == 0, found.output
    assert "no tier has a generation yet" in found.output and "no generation of job" in found.output
    for command in (["verify"], ["restore", "--to", "out"]):
        failed = bucket.run(command[0], "job", *command[1:])
        assert failed.exit_code == 1 and "the store has no generation of job" in failed.output


def test_generations_are_listed_with_their_new_bytes(bucket: Bucket) -> None:
    filled(bucket)
    bucket.cluster.about = job(checkpoint=MARKS)
    shown = bucket.run("ls", "job")
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.output.splitlines()]
    assert lines[1][:2] == ["local", "2/40"] and lines[2][:2] == ["remote", "2/30"]
    head = lines.index(next(line for line in lines if line[:2] == ["GENERATION", "STEP"]))
    rows = [dict(zip(lines[head], line, strict=True)) for line in lines[head + 1 : head + 4]]
    columns = ("GENERATION", "SHARDS", "WORLD", "TORCH", "SIZE", "NEW", "LINEAGE", "WHOLE", "RESTORE")
    assert [tuple(row[head] for head in columns) for row in rows] == [
        ("2/15", "2", "2", "2.13.0", "2.9Ki", "2.0Ki", "yes", "yes", "yes"),
        ("1/20", "2", "2", "2.13.0", "2.9Ki", "1000", "no", "yes", "no"),
        ("1/10", "2", "2", "2.13.0", "2.9Ki", "2.9Ki", "yes", "yes", "no"),
    ]
    assert shown.output.splitlines()[-1].endswith("a restart of job reads 2/15.")
    listed = json.loads(bucket.run("ls", "job", "-o", "json").output)
    assert [(one["generation"], one["newBytes"]) for one in listed["generations"]] == [
        ("2/15", 2000), ("1/20", 1000), ("1/10", 3000),
    ]  # fmt: skip
    assert listed["checkpoint"]["watermarks"]["local"]["step"] == 40 and listed["store"] == "s3"
    assert listed["generations"][0]["saved"] == "2026-01-01T12:00:00Z"


def test_a_deleted_job_is_found_by_its_uid(bucket: Bucket) -> None:
    filled(bucket)
    bucket.cluster.about = None
    found = bucket.run("ls", "job", "--store", "s3", "--uid", "uid-1")
    assert found.exit_code == 0 and "2/15" in found.output and "TIER" not in found.output
    for alone in (["--store", "s3"], ["--uid", "uid-1"]):
        failed = bucket.run("ls", "job", *alone)
        assert failed.exit_code == 1 and "--store and --uid go together" in failed.output
    failed = bucket.run("ls", "job", "--store", "s3", "--uid", "../other")
    assert failed.exit_code == 1 and "is no name of a namespace or uid of a job" in failed.output


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ({"local": {}, "peer": {}}, "only in its nodes' memory"),
        ({}, "only in its nodes' memory"),
    ],
)
def test_a_job_without_a_store_has_its_watermarks(bucket: Bucket, tiers: Any, words: str) -> None:
    bucket.cluster.about = job(tiers, checkpoint=MARKS)
    assert words in no_store_reason(bucket.cluster.about)
    shown = bucket.run("ls", "job")
    assert shown.exit_code == 0 and "2/40" in shown.output and words in shown.output
    assert json.loads(bucket.run("ls", "job", "-o", "json").output)["generations"] is None
    for command in (["verify"], ["restore", "--to", "out"], ["export", "--to", "out"]):
        failed = bucket.run(command[0], "job", *command[1:])
        assert failed.exit_code == 1 and words in failed.output


def test_a_job_without_tiers_and_checkpoints_saves_none() -> None:
    assert "job saves no checkpoints: spec.checkpoint.tiers is empty" in no_store_reason(job({}))


# Tests of rights, keys and libraries.


@pytest.mark.parametrize(
    ("error", "words"), [(Forbidden, "ask an administrator"), (NotFound, "--operator-namespace")]
)
def test_an_unreadable_secret_is_an_error_with_advice(
    bucket: Bucket, error: type[ApiError], words: str
) -> None:
    bucket.cluster.secret_error = error
    failed = bucket.run("verify", "job", "--operator-namespace", "elsewhere")
    assert failed.exit_code == 1
    assert "error: secrets keys in elsewhere: no; " in failed.output and words in failed.output


def test_a_secret_without_a_key_is_an_error(bucket: Bucket) -> None:
    bucket.cluster.keys = {"accessKey": "a"}
    failed = bucket.run("verify", "job")
    assert failed.exit_code == 1 and "Secret convoy-system/keys has no secretKey" in failed.output


def test_without_boto3_the_error_gives_the_install_command(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    failed = bucket.run("verify", "job")
    assert failed.exit_code == 1
    assert "pip install --no-deps boto3 botocore s3transfer jmespath" in failed.output
    assert install_advice("xxhash").endswith("pip install xxhash")


def test_another_endpoint_may_be_given(bucket: Bucket) -> None:
    filled(bucket)
    url = bucket.cluster.where.spec.s3.endpoint
    bucket.cluster.where.spec.s3.endpoint = "http://127.0.0.1:9"
    bucket.cluster.where.spec.s3.path_style = False
    assert bucket.run("verify", "job", "--endpoint", url).exit_code == 0
    failed = bucket.run("verify", "job", "--endpoint", "nowhere")
    assert failed.exit_code == 1 and "error: CheckpointStore s3: " in failed.output


@pytest.mark.parametrize(
    ("endpoint", "path_style", "found"),
    [(None, False, "auto"), (None, True, "path"), ("http://localhost:9000", False, "path")],
)
def test_a_forwarded_endpoint_uses_path_style(
    bucket: Bucket, endpoint: str | None, path_style: bool, found: str
) -> None:
    bucket.cluster.where.spec.s3.path_style = path_style
    blobs: Any = connect(cast(Client, bucket.cluster), "s3", "convoy-system", endpoint, None)
    assert blobs._config.s3["addressing_style"] == found


def test_a_folder_is_refused_for_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    failed = bucket.run("verify", "job", "--folder", str(tmp_path))
    assert failed.exit_code == 1 and "--folder is for a volume; CheckpointStore s3 is bucket" in failed.output


def test_the_error_of_the_store_is_shown(bucket: Bucket, server: int) -> None:
    proxy = fault_proxy.FaultProxy(server)
    try:
        proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
        failed = bucket.run("verify", "job", "--endpoint", proxy.url)
    finally:
        proxy.close()
    assert failed.exit_code == 1 and "grant s3:ListBucket" in failed.output


# Tests of verify.


def test_a_complete_generation_passes_verification(bucket: Bucket) -> None:
    filled(bucket)
    found = bucket.run("verify", "job")
    assert found.exit_code == 0, found.output
    assert found.output == "job 2/15: 3 chunks (2.9Ki) read, all digests match\n"
    found = bucket.run("verify", "job", "--all")
    assert found.output == "job 2/15, 1/20, 1/10: 6 chunks (5.9Ki) read, all digests match\n"
    assert "job 1/20: 3 chunks" in bucket.run("verify", "job", "--generation", "1/20").output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--generation", "7/7"], 1, "no generation 7/7 of job"),
        (["--generation", "seven"], 1, "must be incarnation/step"),
        (["--generation", "1/10", "--all"], 1, "cannot be combined"),
    ],
)
def test_invalid_generation_arguments_are_refused(
    bucket: Bucket, words: list[str], code: int, text: str
) -> None:
    filled(bucket)
    found = bucket.run("verify", "job", *words)
    assert (found.exit_code, text in found.output) == (code, True)


@pytest.mark.parametrize("spoilt", [noise("other"), noise(5)[:-1], b""])
def test_a_damaged_chunk_is_named(bucket: Bucket, spoilt: bytes) -> None:
    filled(bucket)
    name = chunk_of(noise(5)).digest
    bucket.spoil("chunks", name, spoilt)
    found = bucket.run("verify", "job")
    assert found.exit_code == 1
    assert f"chunk {name}" in found.output and "needed by shard 0 of 2/15" in found.output
    assert "error: the checkpoints of job are not whole: 1 damaged, 0 missing" in found.output
    assert bucket.run("verify", "job", "--generation", "1/10").exit_code == 0


def test_a_missing_chunk_and_a_missing_manifest_are_named(bucket: Bucket) -> None:
    filled(bucket)
    lost = shard((2, 15), [noise(6)], "1")
    bucket.remove("chunks", chunk_of(noise(1)).digest)
    bucket.remove("manifests", lost.id)
    found = bucket.run("verify", "job", "--all")
    assert found.exit_code == 1 and "0 damaged, 2 missing" in found.output
    places = "shard 0 of 2/15, shard 0 of 1/20, shard 0 of 1/10"
    assert f"chunk {chunk_of(noise(1)).digest} is missing; needed by {places}" in found.output
    assert f"manifest {lost.id} is missing; needed by shard 1 of 2/15" in found.output


def test_an_unreadable_record_may_be_the_newest_generation(bucket: Bucket) -> None:
    filled(bucket)
    bucket.spoil("records", "gen-2-15", b"{}")
    found = bucket.run("verify", "job")
    assert found.exit_code == 1 and "cannot be read: " in found.output and "records/gen-2-15" in found.output
    assert "cannot be read: " in bucket.run("ls", "job").output


# Tests of restore.


def test_a_generation_is_downloaded_into_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    filled(bucket)
    to = tmp_path / "out"
    to.mkdir()
    done = bucket.run("restore", "job", "--to", str(to))
    assert done.exit_code == 0, done.output
    assert done.output == f"job 2/15: 2 shards (2.9Ki) in {to}\n"
    assert (to / "shards" / "0" / "gen-2-15").read_bytes() == noise(1) + noise(5)
    assert (to / "shards" / "1" / "gen-2-15").read_bytes() == noise(6)
    record = records.parse_record((to / "record.json").read_bytes())
    assert record.generation == Generation(2, 15)
    for key in record.shards.values():
        assert records.parse_manifest((to / "manifests" / f"{key}.json").read_bytes()).id == key
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_not_empty_stays_unchanged(bucket: Bucket, tmp_path: Path) -> None:
    filled(bucket)
    (tmp_path / "mine").write_text("mine")
    for to, words in ((tmp_path, "is not empty"), (tmp_path / "mine", "already exists")):
        failed = bucket.run("restore", "job", "--to", str(to))
        assert failed.exit_code == 1 and words in failed.output
    failed = bucket.run("restore", "job", "--to", str(tmp_path / "no" / "where"))
    assert failed.exit_code == 1 and "does not exist" in failed.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_older_generation_is_restored_if_the_newest_is_damaged(bucket: Bucket, tmp_path: Path) -> None:
    filled(bucket)
    bucket.spoil("chunks", chunk_of(noise(6)).digest, noise("other"))
    done = bucket.run("restore", "job", "--to", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert "2/15, shard 1: chunk" in done.output and "using the older generation 1/10" in done.output
    assert (tmp_path / "out" / "shards" / "0" / "gen-1-10").read_bytes() == noise(1) + noise(2)
    assert not (tmp_path / "out" / "shards" / "0" / "gen-2-15").exists()


def test_a_given_generation_is_not_replaced_by_another(bucket: Bucket, tmp_path: Path) -> None:
    filled(bucket)
    to = str(tmp_path / "out")
    bucket.spoil("chunks", chunk_of(noise(6)).digest, noise("other"))
    failed = bucket.run("restore", "job", "--to", to, "--generation", "2/15")
    assert failed.exit_code == 1 and "2/15 of job is not whole: 2/15 lacks shard 1" in failed.output
    assert not list(tmp_path.iterdir())
    assert bucket.run("restore", "job", "--to", to, "--generation", "1/20").exit_code == 0


def test_a_journal_is_downloaded_with_its_base(bucket: Bucket, tmp_path: Path) -> None:
    base = bucket.save((1, 1), {"0": [noise(1)]})
    bucket.save((1, 2), {"0": [noise(2)]}, parent=(1, 1), extends={"0": base["0"].id})
    done = bucket.run("restore", "job", "--to", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    found = tmp_path / "out" / "shards" / "0"
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        "gen-1-1": noise(1),
        "gen-1-2": noise(2),
    }


def test_a_shard_name_that_leaves_the_folder_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.save((1, 1), {"../../out": [noise(1)]})
    failed = bucket.run("restore", "job", "--to", str(tmp_path / "out"))
    assert failed.exit_code == 1 and "the name is not a valid file name" in failed.output
    assert not list(tmp_path.iterdir())


def test_encoded_chunks_are_decoded(bucket: Bucket, tmp_path: Path) -> None:
    pieces = [numbers(1), noise(2), numbers(3)]
    bucket.store = Store(bucket.blobs, "team", "uid-1", packer=AlwaysEncode())
    bucket.save((1, 10), {"0": pieces})
    sizes = bucket.store.listing("chunks").sizes
    assert sum(sizes.values()) < 0.95 * sum(map(len, pieces))
    for command in (["verify", "job"], ["fsck", "s3", "--deep"]):
        done = bucket.run(*command)
        assert done.exit_code == 0, done.output
    shown = bucket.run("ls", "job", "-o", "json")
    (row,) = json.loads(shown.output)["generations"]
    assert row["bytes"] == sum(sizes.values()) and row["whole"]
    done = bucket.run("restore", "job", "--to", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "shards" / "0" / "gen-1-10").read_bytes() == b"".join(pieces)
    spoilt = chunk_of(pieces[0]).digest
    bucket.spoil("chunks", spoilt, bytes(sizes[spoilt]))
    assert bucket.run("ls", "job").exit_code == 0
    failed = bucket.run("verify", "job")
    assert failed.exit_code == 1 and spoilt in failed.output
